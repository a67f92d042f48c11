// The input of the interpreter: a call of a collective on one rank, and the state of each lane.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"
#include "src/exec/datatype.h"
#include "src/schedule/program_view.h"
#include "src/transport/fifo.h"

namespace weft {

// A block of its own length at a place of its own.
struct IrregularBlock {
  std::byte* data = nullptr;
  uint64_t count = 0, slice = 0, iterations = 0;  // as in Operation
  uint64_t segment = 0, offset = 0;               // the shared segment that holds it; 0: none
};

// `progress` has one counter per lane: the steps completed over all iterations. It is nullptr if no
// lane depends on another.
struct Operation {
  ProgramView program;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  uint64_t count = 0;   // elements per block
  uint64_t stride = 0;  // elements from block to block of a buffer; more than `count` in a part
  uint64_t chunk = 0;   // elements per chunk (the last ones of a block may be shorter or empty)
  uint64_t slice = 0;   // elements of a chunk that one iteration moves
  uint64_t iterations = 0;
  // Set if blocks differ in length: one per block of the input, and of the output. Then chunks are
  // blocks, every lane has one step, and buffers, stride, chunk, slice and iterations do not count.
  const IrregularBlock *inputs = nullptr, *outputs = nullptr;
  uint32_t element = 1;  // bytes
  Reduction reduction;
  uint64_t lend_from = ~uint64_t{0};  // smallest message that is lent
  // Messages with the same data over the network share it if the slice's message size is in this
  // range.
  uint64_t share_from = ~uint64_t{0}, share_below = ~uint64_t{0};
  // The shared segments that hold the buffers. 0: none; then only ranks of the same process can
  // read lent data.
  uint64_t input_segment = 0, output_segment = 0;
  uint64_t input_offset = 0, output_offset = 0;
  // What lossy codecs lost in earlier calls: a float for every element of the input, and one for
  // every element of the output. nullptr: nothing is kept.
  float *input_losses = nullptr, *output_losses = nullptr;
  // Both sides of a message compare these.
  uint64_t sequence = 0;
  uint8_t collective = 0;
  int32_t root = 0;
  uint32_t plan = 0;
  SendPort* const* sends = nullptr;
  RecvPort* const* receives = nullptr;
  uint64_t* progress = nullptr;
};

// GPUs share the data of messages in this size range. Writing a smaller message takes no time. The
// socket plugin lends pages of larger messages on one machine (PageLoan::kLeastBytes), but not if a
// message has two parts.
inline constexpr uint64_t kShareFrom = 16u << 10, kShareBelow = 192u << 10;

// The header tells the receiver which call a message belongs to.
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
