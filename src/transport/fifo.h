// The FIFO between two ranks: a ring buffer in memory that both can access, with monotonic counters
// that are never reset. One producer, one consumer. The ring lies in the consumer's memory. A
// message is a 64-byte header and, unless the data is lent, the data itself. The data is contiguous
// and padded to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/host_device.h"

namespace weft {

inline constexpr uint64_t kFifoAlign = 64;
WEFT_HD inline uint64_t fifo_round(uint64_t bytes) {
  return (bytes + kFifoAlign - 1) / kFifoAlign * kFifoAlign;
}

// A place in a ring of `size` bytes, advanced by at most `size`. No division: that is slow on a
// GPU.
WEFT_HD inline uint64_t further(uint64_t at, uint64_t bytes, uint64_t size) {
  return at + bytes < size ? at + bytes : at + bytes - size;
}

struct alignas(kFifoAlign) MessageHeader {
  enum Kind : uint32_t {
    kInline = 1,   // the data follows
    kPointer = 2,  // the data is at `address` of this process
    kSegment = 3,  // the data is at offset `address` of the producer's shared segment `segment`
    kSkip = 4,     // nothing here: skip `bytes`
    // Between hosts only:
    kDetached = 5,   // in transit: the data is the network's next message; no lane sees this
    kDelivered = 6,  // the network has put the data where the lane wanted it
  };
  uint32_t kind = 0;
  uint8_t collective = 0, type = 0, op = 0;
  uint8_t codec = 0;  // see ProgramOperand; both sides must agree
  uint64_t bytes = 0;
  uint64_t sequence = 0;    // number of the operation in its communicator; both sides must agree
  uint64_t call_bytes = 0;  // count argument of the call, in bytes
  uint64_t address = 0, segment = 0;
  int32_t root = 0;
  // The imported schedule that the operation runs as, 0: none; both sides must agree.
  uint32_t plan = 0;
  uint64_t reserved = 0;  // a defined value, because some code compares whole headers
};
static_assert(sizeof(MessageHeader) == kFifoAlign);

// Shared by both sides. `tail`: bytes ever produced; `head`: bytes ever consumed.
struct FifoControl {
  alignas(kFifoAlign) uint64_t tail = 0;
  uint64_t closed = 0;  // set by a producer that failed: its lent data must not be read any more
  alignas(kFifoAlign) uint64_t head = 0;
  // Set by a consumer that waits for a message from the network. The network then writes the data
  // to this address instead of the ring. `wanted` is written last.
  alignas(kFifoAlign) uint64_t wanted = 0;  // the message's position in the ring, plus one
  uint64_t wanted_address = 0;              // 0: use the ring
  uint64_t wanted_bytes = 0;
};

// A rank that has nothing to do sleeps here. In memory that all ranks of the host can access.
struct Doorbell {
  alignas(kFifoAlign) uint32_t ticket = 0;  // futex word
  uint32_t sleeping = 0;
};

// How to notify the other side of a FIFO.
struct Bell {
  Doorbell* door = nullptr;
  int event_fd =
      -1;  // >= 0: the other side is a proxy thread that waits on this eventfd and not on the futex
};

// Translates a producer's shared segment into a local address. May map it first (slow path).
class SegmentMapper {
 public:
  virtual ~SegmentMapper() = default;
  // nullptr if the segment is not available.
  virtual const std::byte* map(uint64_t segment) noexcept = 0;
};

class NetStream;

enum class Lending : uint8_t { kNever, kPointer, kSegment };

// The producer's end. Used by one lane at a time.
struct SendPort {
  FifoControl* control = nullptr;
  std::byte* data = nullptr;
  uint64_t size = 0;
  uint64_t tail = 0;        // own copy
  uint64_t at = 0;          // tail % size
  uint64_t head_seen = 0;   // last value read
  uint64_t lent_until = 0;  // the consumer has all lent data when its head reaches this
  Bell bell;
  Lending lending = Lending::kNever;
  int32_t peer = -1;
  NetStream* stream = nullptr;  // carries the data to another host, if any
  // The address of `data` in the stream, if messages may point to data in other rings; otherwise 0.
  uint64_t stream_data = 0;
};

// The consumer's end. Used by one lane at a time.
struct RecvPort {
  FifoControl* control = nullptr;
  std::byte* data = nullptr;
  uint64_t size = 0;
  uint64_t head = 0;
  uint64_t at = 0;     // head % size
  uint64_t taken = 0;  // bytes of the current message
  uint64_t tail_seen = 0;
  Bell bell;
  SegmentMapper* segments = nullptr;
  int32_t peer = -1;
  bool direct = false;          // the network uses `wanted`
  NetStream* stream = nullptr;  // brings the data from another host, if any
};

}  // namespace weft
