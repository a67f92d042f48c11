// The FIFO between two ranks: a byte ring in memory both can reach, with monotonic counters that
// are never reset. One producer and one consumer. The ring lies in the consumer's memory. Messages
// are a 64-byte header and, unless the data is lent, the data itself, contiguous and padded to 64
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/host_device.h"

namespace weft {

inline constexpr uint64_t kFifoAlign = 64;
WEFT_HD inline uint64_t fifo_round(uint64_t bytes) {
  return (bytes + kFifoAlign - 1) / kFifoAlign * kFifoAlign;
}

// A place in a ring of `size` bytes, at most that many further. Divisions take long on a GPU.
WEFT_HD inline uint64_t further(uint64_t at, uint64_t bytes, uint64_t size) {
  return at + bytes < size ? at + bytes : at + bytes - size;
}

struct alignas(kFifoAlign) MessageHeader {
  enum Kind : uint32_t {
    kInline = 1,   // the data follows
    kPointer = 2,  // the data is at `address` of this process
    kSegment = 3,  // the data is at offset `address` of the producer's shared segment `segment`
    kSkip = 4,     // nothing here: go on `bytes` further
    // Between hosts only:
    kDetached = 5,   // on its way: the data is the network's next message; no lane sees this
    kDelivered = 6,  // the data is already where the lane wanted it
  };
  uint32_t kind = 0;
  uint8_t collective = 0, type = 0, op = 0, unused = 0;
  uint64_t bytes = 0;
  uint64_t sequence = 0;    // number of the operation in its communicator; both sides must agree
  uint64_t call_bytes = 0;  // count argument of the call, in bytes
  uint64_t address = 0, segment = 0;
  int32_t root = 0;
  uint32_t plan = 0;      // which imported schedule the operation runs as, 0: none; must agree too
  uint64_t reserved = 0;  // no byte is left to chance: some compare headers as a whole
};
static_assert(sizeof(MessageHeader) == kFifoAlign);

// Shared by both sides. `tail`: bytes ever produced; `head`: bytes ever consumed.
struct FifoControl {
  alignas(kFifoAlign) uint64_t tail = 0;
  uint64_t closed = 0;  // set by a producer that failed: what it lent must not be read any more
  alignas(kFifoAlign) uint64_t head = 0;
  // Set by a consumer that waits for a message from the network: where its data should go, so that
  // it need not pass through the ring. `wanted` is written last.
  alignas(kFifoAlign) uint64_t wanted = 0;  // the message's position in the ring, plus one
  uint64_t wanted_address = 0;              // 0: the ring is fine
  uint64_t wanted_bytes = 0;
};

// Where a rank that has nothing to do sleeps. In memory that all ranks of the host can reach.
struct Doorbell {
  alignas(kFifoAlign) uint32_t ticket = 0;  // futex word
  uint32_t sleeping = 0;
};

// How the other side of a FIFO is told of news.
struct Bell {
  Doorbell* door = nullptr;
  int event_fd =
      -1;  // >= 0: the other side is a proxy thread that waits on this eventfd, not on the futex
};

// Translates a producer's shared segment into an address here; may map it first (a slow path).
class SegmentMapper {
 public:
  virtual ~SegmentMapper() = default;
  // nullptr when the segment cannot be had.
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
  NetStream* stream = nullptr;  // what takes it to another host, if anything
  // Where `data` is for the stream, if messages may refer to what lies in other rings; 0: not.
  uint64_t stream_data = 0;
};

// The consumer's end. Used by one lane at a time.
struct RecvPort {
  FifoControl* control = nullptr;
  std::byte* data = nullptr;
  uint64_t size = 0;
  uint64_t head = 0;
  uint64_t at = 0;     // head % size
  uint64_t taken = 0;  // bytes of the message that is being read
  uint64_t tail_seen = 0;
  Bell bell;
  SegmentMapper* segments = nullptr;
  int32_t peer = -1;
  bool direct = false;          // the network heeds `wanted`
  NetStream* stream = nullptr;  // what brings it from another host, if anything
};

}  // namespace weft
