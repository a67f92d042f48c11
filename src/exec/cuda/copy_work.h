// The copies of one rank in an operation that only moves data, and their order. This part of
// copy-engine mode needs no GPU. Data goes through slots in the receiver's memory, because only the
// owner of a buffer knows its address.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/schedule/collective.h"

namespace weft::cuda {

// Slots per pair of ranks and direction. The receiver empties one while the sender fills the other.
inline constexpr int kCopySlots = 2;

// A message of any length to or from one peer.
struct CopyMessage {
  std::byte* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
};
// A copy within the rank's own memory.
struct OwnCopy {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  size_t bytes = 0;
};

// One operation of one rank: at most one message per peer and direction.
struct CopyWork {
  std::vector<CopyMessage> sends, receives;
  std::vector<OwnCopy> own;
  // A receive may overwrite data that a send reads (all-to-all in place). Then the two must not
  // overlap in time.
  bool in_place = false;
};

// The part of a message that fits into a slot.
struct CopyPiece {
  std::byte* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
  int slot = 0;
};

// Puts copies on a stream, or pretends to. Calls of send() keep their order, and so do calls of
// receive(). A queue need not keep the order between the two.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;
  virtual void copy_own(const OwnCopy& copy) = 0;
  // Waits until the peers' slots for this rank are empty, fills them and marks them full.
  virtual void send(std::span<const CopyPiece> pieces) = 0;
  // Waits until this rank's slots for the peers are full, empties them and marks them empty.
  virtual void receive(std::span<const CopyPiece> pieces) = 0;
};

// The copies of `rank` in a collective that does not reduce. Blocks have `block` bytes and begin
// `stride` bytes apart.
CopyWork copy_work(const Collective& collective, int rank, const void* input, void* output,
                   size_t block, size_t stride);

// Splits messages into pieces of at most `slot_bytes` and hands them to the queue. This order has
// no deadlock even if the queue follows it exactly: every wait is for a step that comes earlier in
// the peer's order.
void run_copies(const CopyWork& work, size_t slot_bytes, CopyQueue& queue);

}  // namespace weft::cuda
