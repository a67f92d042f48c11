// What a rank copies in an operation that only moves data, and in which order: the part of
// copy-engine mode that needs no GPU. Data goes through slots in the receiver's memory, because
// nobody but its owner knows where a buffer is.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/schedule/collective.h"

namespace weft::cuda {

// Slots per pair of ranks and direction: while the receiver empties one, the sender fills another.
inline constexpr int kCopySlots = 2;

// A message of any length to or from one peer.
struct CopyMessage {
  std::byte* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
};
// Within the rank's own memory.
struct OwnCopy {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  size_t bytes = 0;
};

// One operation of one rank: at most one message per peer and direction.
struct CopyWork {
  std::vector<CopyMessage> sends, receives;
  std::vector<OwnCopy> own;
  // A receive may overwrite what a send reads (all-to-all in place): the two must not overlap in
  // time.
  bool in_place = false;
};

// The part of a message that fits into a slot.
struct CopyPiece {
  std::byte* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
  int slot = 0;
};

// Puts copies on a stream, or pretends to. What is handed to send() is done in order, and so is
// what is handed to receive(); a queue may or may not keep the order between the two.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;
  virtual void copy_own(const OwnCopy& copy) = 0;
  // Waits until the peers' slots for this rank are empty, fills them and says so.
  virtual void send(std::span<const CopyPiece> pieces) = 0;
  // Waits until this rank's slots for the peers are full, empties them and says so.
  virtual void receive(std::span<const CopyPiece> pieces) = 0;
};

// What `rank` copies in a collective that does not reduce; blocks of `block` bytes.
CopyWork copy_work(const Collective& collective, int rank, const void* input, void* output,
                   size_t block);

// Cuts messages into pieces of at most `slot_bytes` and hands them to the queue. The order is free
// of deadlocks even if a queue does everything in exactly this order: every wait is for something
// that the peer does earlier in its own.
void run_copies(const CopyWork& work, size_t slot_bytes, CopyQueue& queue);

}  // namespace weft::cuda
