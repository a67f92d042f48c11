// See copy_work.h.
#include "src/exec/cuda/copy_work.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// The input block of `rank` with this content; -1 if there is none.
int block_holding(const Collective& c, int rank, int id) {
  for (int block = 0; block < c.input_blocks(rank); block++)
    if (c.start(rank, block, 1).id == id) return block;
  return -1;
}

// The k-th pieces of all messages that are long enough.
void add_slices(std::span<const CopyMessage> messages, size_t k, size_t slot_bytes,
                std::vector<CopyPiece>& pieces) {
  pieces.clear();
  const size_t at = k * slot_bytes;
  for (const CopyMessage& m : messages)
    if (at < m.bytes)
      pieces.push_back({m.pointer + at, std::min(slot_bytes, m.bytes - at), m.peer,
                        static_cast<int>(k % kCopySlots)});
}

}  // namespace

CopyWork copy_work(const Collective& c, int rank, const void* input, void* output, size_t block,
                   size_t stride) {
  CopyWork work;
  auto* in = static_cast<std::byte*>(const_cast<void*>(input));
  auto* out = static_cast<std::byte*>(output);
  work.in_place = c.kind == CollectiveKind::kAllToAll && input == output;
  // The collective's definition says which rank needs which block of which peer. Every rank visits
  // its peers in a different order, so that they do not all use the same peer at once.
  for (int k = 0; k < c.nranks; k++) {
    const int to = (rank + k) % c.nranks, from = (rank + c.nranks - k) % c.nranks;
    for (int b = 0; b < c.output_blocks(to); b++) {
      const ChunkGoal goal = c.goal(to, b, 1);
      if (goal.contributor != rank) continue;
      std::byte* source = in + static_cast<size_t>(block_holding(c, rank, goal.id)) * stride;
      if (to != rank) {
        work.sends.push_back({source, block, to});
      } else if (std::byte* destination = out + static_cast<size_t>(b) * stride;
                 destination != source) {
        work.own.push_back({destination, source, block});
      }
    }
    for (int b = 0; from != rank && b < c.output_blocks(rank); b++)
      if (c.goal(rank, b, 1).contributor == from)
        work.receives.push_back({out + static_cast<size_t>(b) * stride, block, from});
  }
  return work;
}

// Time in steps: piece k is sent at 2k and received at 2k + 3. A receive waits for the send of the
// same piece. A send waits for the receive of the slot's previous piece, kCopySlots earlier. Both
// lie in the past, on every rank and for all message lengths.
void run_copies(const CopyWork& work, size_t slot_bytes, CopyQueue& queue) {
  static_assert(kCopySlots >= 2);
  for (const OwnCopy& copy : work.own) queue.copy_own(copy);
  size_t longest = 0;
  for (const auto* messages : {&work.sends, &work.receives})
    for (const CopyMessage& m : *messages) longest = std::max(longest, m.bytes);
  const size_t pieces = (longest + slot_bytes - 1) / slot_bytes;
  std::vector<CopyPiece> now;
  for (size_t k = 0; k <= pieces && pieces > 0; k++) {
    add_slices(work.sends, k, slot_bytes, now);
    if (!now.empty()) queue.send(now);
    if (k == 0) continue;
    add_slices(work.receives, k - 1, slot_bytes, now);
    if (!now.empty()) queue.receive(now);
  }
}

}  // namespace weft::cuda
