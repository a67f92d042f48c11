// At init the ranks of a communicator agree on their thread blocks: the same number on every rank,
// reserved for this communicator, or else of slots that other communicators use too.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "src/exec/cuda/block_share.h"

namespace weft {

// What agree_on_blocks() needs of a rank.
struct BlockAgreementParts {
  std::vector<cuda::BlockClaim> claims;  // of all ranks, without free_blocks
  int percent = -1;                      // WEFT_BLOCK_SHARE
  int most = 0;                          // blocks per rank
  // Collective: one text per rank.
  std::function<std::vector<std::string>(const std::string&)> all_gather;
  // See RankBlocks.
  std::function<cuda::BlockRoom(bool any)> look;
  std::function<bool(int blocks)> reserve;
  std::function<void()> release;
};

struct BlockAgreement {
  int blocks = 0;   // per rank
  bool own = true;  // this communicator has reserved them
};

// Collective. Where there is no room it tries again until `until`, because another communicator may
// be half made: it has taken all blocks and offers no slot yet. Then all ranks throw Error.
BlockAgreement agree_on_blocks(const BlockAgreementParts& parts,
                               std::chrono::steady_clock::time_point until);

}  // namespace weft
