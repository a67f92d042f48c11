// What the interpreter works on: a call of a collective on one rank, and where each of its lanes
// has got to.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"
#include "src/exec/datatype.h"
#include "src/schedule/program_view.h"
#include "src/transport/fifo.h"

namespace weft {

// `progress` has a counter per lane: steps completed, over all iterations; nullptr where no lane
// depends on another.
struct Operation {
  ProgramView program;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  uint64_t count = 0;  // elements per block
  uint64_t chunk = 0;  // elements per chunk (the last ones of a block may be shorter or empty)
  uint64_t slice = 0;  // elements of a chunk that one iteration moves
  uint64_t iterations = 0;
  uint32_t element = 1;  // bytes
  Reduction reduction;
  uint64_t lend_from = ~uint64_t{0};  // smallest message that is lent
  // Messages that carry the same data over the network share it, where slices are of such sizes.
  uint64_t share_from = ~uint64_t{0}, share_below = ~uint64_t{0};
  // The shared segments the buffers lie in; 0: none, only processes that share the address space
  // can be lent to.
  uint64_t input_segment = 0, output_segment = 0;
  uint64_t input_offset = 0, output_offset = 0;
  // What both sides of a message compare.
  uint64_t sequence = 0;
  uint8_t collective = 0;
  int32_t root = 0;
  uint32_t plan = 0;
  SendPort* const* sends = nullptr;
  RecvPort* const* receives = nullptr;
  uint64_t* progress = nullptr;
};

// Messages of GPUs that share their data: shorter ones take no time to write, and of longer ones
// the socket plugin lends pages on one machine (PageLoan::kLeastBytes), which it does not for two
// parts.
inline constexpr uint64_t kShareFrom = 16u << 10, kShareBelow = 192u << 10;

// What a message says of the call it belongs to.
WEFT_HD inline MessageHeader header_for(const Operation& op, uint64_t bytes) {
  MessageHeader message;
  message.bytes = bytes;
  message.sequence = op.sequence;
  message.call_bytes = op.count * op.element;
  message.collective = op.collective;
  message.type = static_cast<uint8_t>(op.reduction.type);
  message.op = static_cast<uint8_t>(op.reduction.op);
  message.root = op.root;
  message.plan = op.plan;
  return message;
}

enum class Advance : uint8_t {
  kDone,     // the lane is finished
  kAgain,    // a step was performed, more are to come
  kBlocked,  // nothing can be done now
  kFailed,   // see LaneState::failure
};

struct LaneState {
  enum class Failure : uint8_t { kNone, kMismatch, kNoSegment, kClosed };
  uint32_t lane = 0;
  uint32_t step = 0;
  uint64_t iteration = 0;
  bool lent = false;
  Failure failure = Failure::kNone;
  int32_t waits_for = -1;  // when blocked: the peer, -1 for a lane of this rank
  bool waits_to_send = false;
  MessageHeader seen;  // when mismatched: what the peer sent
};

}  // namespace weft
