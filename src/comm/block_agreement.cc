// See block_agreement.h.
#include "src/comm/block_agreement.h"

#include <algorithm>
#include <thread>

#include "src/base/error.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kFirstPause = milliseconds(1), kLongestPause = milliseconds(20);

// One number per rank.
std::vector<int> gather_numbers(const BlockAgreementParts& parts, int mine) {
  std::vector<int> numbers;
  for (const std::string& text : parts.all_gather(std::to_string(mine)))
    numbers.push_back(std::stoi(text));
  return numbers;
}

// Nobody tries again before all have given theirs back.
void give_back(const BlockAgreementParts& parts) {
  parts.release();
  parts.all_gather("");
}

// Tries to reserve the same number of blocks on all ranks; all or nothing.
bool reserve_on_all(const BlockAgreementParts& parts, int blocks) {
  const std::vector<int> done = gather_numbers(parts, parts.reserve(blocks) ? 1 : 0);
  if (std::count(done.begin(), done.end(), 0) == 0) return true;
  give_back(parts);
  return false;
}

// Blocks per rank that all ranks have reserved; 0: none. Another communicator may take blocks
// meanwhile; then they try with half as many.
int reserve_own(const BlockAgreementParts& parts, int free_blocks) {
  std::vector<cuda::BlockClaim> claims = parts.claims;
  const std::vector<int> free = gather_numbers(parts, free_blocks);
  for (size_t rank = 0; rank < claims.size(); rank++) claims[rank].free_blocks = free[rank];
  int blocks = cuda::blocks_per_rank(claims, parts.percent, parts.most);
  while (blocks > 0 && !reserve_on_all(parts, blocks)) blocks /= 2;
  return blocks;
}

// Blocks of a slot that this rank can use; 0: there is none. Without a slot of its issuer a rank
// takes one block, which later communicators can use too. Programs make communicators on any
// thread: better to use another one's slot than to fail. If nothing was free and now is, there may
// be more than one block: the ranks had better begin again.
int find_slot(const BlockAgreementParts& parts, const cuda::BlockRoom& room) {
  if (room.slot_blocks > 0) return room.slot_blocks;
  return room.free_blocks > 0 && parts.reserve(1) ? 1 : parts.look(true).slot_blocks;
}

}  // namespace

BlockAgreement agree_on_blocks(const BlockAgreementParts& parts, steady_clock::time_point until) {
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const cuda::BlockRoom room = parts.look(false);
    if (const int blocks = reserve_own(parts, room.free_blocks); blocks > 0) return {blocks, true};
    const std::vector<int> slots = gather_numbers(parts, find_slot(parts, room));
    int blocks = *std::min_element(slots.begin(), slots.end());
    for (const cuda::BlockClaim& claim : parts.claims)
      if (claim.most > 0) blocks = std::min(blocks, claim.most);
    if (blocks > 0) return {std::min(blocks, parts.most), false};
    give_back(parts);
    // Clocks and sleeps differ: the ranks stop together.
    const std::vector<int> late = gather_numbers(parts, steady_clock::now() >= until ? 1 : 0);
    if (std::count(late.begin(), late.end(), 1) > 0)
      fail(ncclSystemError,
           "a GPU of this communicator has no thread block left for another rank: destroy "
           "communicators, or lower WEFT_BLOCK_SHARE");
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace weft
