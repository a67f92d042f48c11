// See block_share.h.
#include "src/exec/cuda/block_share.h"

#include <algorithm>

namespace weft::cuda {

int blocks_per_rank(std::span<const BlockClaim> ranks, int percent, int most) {
  if (percent == 0) return 0;
  int blocks = most;
  for (const BlockClaim& rank : ranks) {
    const auto sharing =
        static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [&](const BlockClaim& other) {
          return other.gpu == rank.gpu;
        }));
    const int usual = sharing == 1 ? kShareOfOwnGpu : 100;
    int share = rank.free_blocks * (percent > 0 ? std::min(percent, 100) : usual) / 100 / sharing;
    if (percent < 0 && sharing > 1 && share >= kManyBlocks) share--;
    blocks = std::min(blocks, std::max(share, rank.free_blocks >= sharing ? 1 : 0));
    if (sharing == 1) blocks = std::min(blocks, kOwnGpuBlocks);
    if (rank.most > 0) blocks = std::min(blocks, rank.most);
  }
  return blocks;
}

}  // namespace weft::cuda
