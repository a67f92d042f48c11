// The interpreter of a Program: one step of one lane at a time. Compiled for the host, and by nvcc
// for a thread block.
//
// A lane is a resumable state machine: advance() never waits. It performs the next step if the
// step's dependencies are complete, its messages have arrived and its FIFOs have room. Otherwise it
// returns kBlocked. The Target supplies memory operations and data movement, for steps of at most
// kMostOperands sources and destinations. The protocol is here.
//
// Order of memory operations: store_tail() comes after finish_writes(), which comes after the data
// and the headers. store_head() comes after the step's reads. store_progress() comes after both, as
// seen by lanes of this rank.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"
#include "src/exec/operation.h"
#include "src/schedule/collective_kind.h"
#include "src/schedule/program_view.h"
#include "src/transport/fifo.h"

namespace weft {

template <typename Target>
class Interpreter {
 public:
  WEFT_HD Interpreter(const Operation& operation, Target& target)
      : op_(operation), target_(target) {}

  WEFT_HD Advance advance(LaneState& lane) {
    const ProgramLane& program_lane = op_.program.lanes[lane.lane];
    if (lane.iteration == iterations(program_lane) || program_lane.steps == 0) return drain(lane);
    const ProgramStep& step = op_.program.steps[program_lane.first_step + lane.step];
    if (!dependencies_complete(lane, step)) return Advance::kBlocked;
    // Empty chunks are sent as messages too: the proof relies on the order they create.
    if (step.sources + step.destinations > 0) {
      const Advance outcome = perform(lane, step, message_bytes(step, lane.iteration));
      if (outcome != Advance::kAgain) return outcome;
    }
    if (op_.progress != nullptr)
      target_.store_progress(&op_.progress[lane.lane],
                             lane.iteration * program_lane.steps + lane.step + 1);
    if (++lane.step == program_lane.steps) {
      lane.step = 0;
      lane.iteration++;
    }
    return Advance::kAgain;
  }

  // Times that a lane runs its steps.
  WEFT_HD uint64_t iterations(const ProgramLane& lane) const {
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) return block_of(op_.program.steps[lane.first_step]).iterations;
    return op_.iterations;
  }

  // Bytes that a step moves in iteration `k`.
  WEFT_HD uint64_t message_bytes(const ProgramStep& step, uint64_t k) const {
    uint64_t elements = 0;
    for (int32_t c = 0; c < step.count; c++) elements += slice_elements(step, c, k);
    return elements * op_.element;
  }

  // Bytes of a block of the call. Both ends of a message compare them.
  WEFT_HD uint64_t call_bytes(const ProgramStep& step) const {
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) return block_of(step).count * op_.element;
    return op_.count * op_.element;
  }

  // Bytes of the message of an operand. They differ from the step's if it is coded.
  WEFT_HD uint64_t operand_bytes(const ProgramStep& step, const ProgramOperand& operand, uint64_t k,
                                 uint64_t bytes) const {
    if constexpr (Target::kDecodes) {
      if (operand.codec == 0) return bytes;
      const CodecSpec& spec = op_.program.codecs[operand.codec - 1];
      bytes = 0;
      for (int32_t c = 0; c < step.count; c++)
        bytes += encoded_bytes(spec, slice_elements(step, c, k), op_.element);
    }
    return bytes;
  }

 private:
  // The block that a step of an irregular operation moves. In a copy both have one length.
  WEFT_HD const IrregularBlock& block_of(const ProgramStep& step) const {
    const ProgramOperand* operands = op_.program.operands + step.first_operand;
    return operands[0].buffer == ProgramBuffer::kPeer ? block_of(operands[1])
                                                      : block_of(operands[0]);
  }
  WEFT_HD const IrregularBlock& block_of(const ProgramOperand& operand) const {
    return (operand.buffer == ProgramBuffer::kInput ? op_.inputs : op_.outputs)[operand.index];
  }

  // Elements of chunk c of a step that iteration `k` moves.
  WEFT_HD uint64_t slice_elements(const ProgramStep& step, int32_t c, uint64_t k) const {
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) {
        const IrregularBlock& block = block_of(step);
        const uint64_t before = k * block.slice;
        if (before >= block.count) return 0;
        return block.count - before < block.slice ? block.count - before : block.slice;
      }
    const int32_t sub = sub_of(step, c);
    const uint64_t begin = static_cast<uint64_t>(sub) * op_.chunk;
    if (begin >= op_.count) return 0;
    const uint64_t length = op_.count - begin < op_.chunk ? op_.count - begin : op_.chunk;
    const uint64_t offset = k * op_.slice;
    if (offset >= length) return 0;
    return length - offset < op_.slice ? length - offset : op_.slice;
  }

  WEFT_HD int32_t sub_of(const ProgramStep& step, int32_t c) const {
    const int32_t sub = step.sub + c;
    return sub < op_.program.chunks ? sub : sub % op_.program.chunks;
  }

  // Where a slice of a local chunk begins, in elements from the start of a buffer whose blocks
  // begin `stride` elements apart.
  WEFT_HD uint64_t element_offset(const ProgramOperand& operand, int32_t c, uint64_t k,
                                  uint64_t stride) const {
    const auto index = static_cast<uint32_t>(operand.index + c);
    const auto chunks = static_cast<uint32_t>(op_.program.chunks);
    const uint32_t block = operand.buffer == ProgramBuffer::kScratch ? 0 : index / chunks;
    return block * stride + (index - block * chunks) * op_.chunk + k * op_.slice;
  }
  // The same in bytes, in the caller's buffer.
  WEFT_HD uint64_t local_offset(const ProgramOperand& operand, int32_t c, uint64_t k) const {
    return element_offset(operand, c, k, op_.stride) * op_.element;
  }

  WEFT_HD std::byte* local(const ProgramOperand& operand, int32_t c, uint64_t k) const {
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) {
        const IrregularBlock& block = block_of(operand);
        return block.data + k * block.slice * op_.element;
      }
    std::byte* base = operand.buffer == ProgramBuffer::kInput    ? const_cast<std::byte*>(op_.input)
                      : operand.buffer == ProgramBuffer::kOutput ? op_.output
                                                                 : op_.scratch;
    return base + local_offset(operand, c, k);
  }

  WEFT_HD bool dependencies_complete(LaneState& lane, const ProgramStep& step) {
    for (uint32_t i = 0; i < step.dependencies; i++) {
      const ProgramDependency& d = op_.program.dependencies[step.first_dependency + i];
      const uint64_t goal = lane.iteration * op_.program.lanes[d.lane].steps + d.step + 1;
      if (target_.load_progress(&op_.progress[d.lane]) < goal) {
        lane.waits_for = -1;
        return false;
      }
    }
    return true;
  }

  // Passes the message that a step reads from a port, and its data, to `use`. Returns false if the
  // message has not arrived, or not completely.
  template <typename Use>
  WEFT_HD bool receive(RecvPort& port, const Use& use) {
    for (;;) {
      if (!there(port, kFifoAlign)) return false;
      const std::byte* at = port.data + port.at;
      const auto& header = target_.header(reinterpret_cast<const MessageHeader*>(at));
      if (header.kind == MessageHeader::kSkip) {
        port.head += header.bytes;
        port.at = further(port.at, header.bytes, port.size);
        continue;
      }
      port.taken = footprint(header);
      if (!there(port, port.taken)) return false;
      use(header, at + kFifoAlign);
      return true;
    }
  }

  // A network may deliver part of a message, or part of a skipped stretch. The head is then ahead
  // of the tail.
  WEFT_HD bool there(RecvPort& port, uint64_t bytes) {
    if (static_cast<int64_t>(port.tail_seen - port.head) >= static_cast<int64_t>(bytes))
      return true;
    port.tail_seen = target_.load(&port.control->tail);
    return static_cast<int64_t>(port.tail_seen - port.head) >= static_cast<int64_t>(bytes);
  }

  WEFT_HD static uint64_t footprint(const MessageHeader& header) {
    return kFifoAlign + (header.kind == MessageHeader::kInline ? fifo_round(header.bytes) : 0);
  }

  // Makes sure that `bytes` (a multiple of the alignment) fit in one piece. If the ring's end is
  // too short, the sender skips it.
  WEFT_HD bool reserve(SendPort& port, uint64_t bytes) {
    const uint64_t left = port.size - port.at, skip = left < bytes ? left : 0;
    if (port.size - (port.tail - port.head_seen) < skip + bytes) {
      port.head_seen = target_.load(&port.control->head);
      if (port.size - (port.tail - port.head_seen) < skip + bytes) return false;
    }
    if (skip > 0) {
      auto* skipped = reinterpret_cast<MessageHeader*>(port.data + port.at);
      skipped->kind = MessageHeader::kSkip;
      skipped->bytes = skip;
      port.tail += skip;
      port.at = 0;
    }
    return true;
  }

  // A step may send the same data in several messages over the network. The first port's ring then
  // holds the data, and the other messages point to it. Returns the first port, or nullptr. A call
  // shares data in all iterations or in none, and only if no other step sends through these ports.
  WEFT_HD const SendPort* shared_port(const ProgramStep& step) const {
    const uint64_t largest = largest_message(step);
    if (largest < op_.share_from || largest >= op_.share_below || !step.only_sender || step.coded)
      return nullptr;
    const ProgramOperand* to = op_.program.operands + step.first_operand + step.sources;
    const SendPort* first = nullptr;
    uint32_t peers = 0;
    for (uint32_t i = 0; i < step.destinations; i++) {
      if (to[i].buffer != ProgramBuffer::kPeer) continue;
      const SendPort& port = *op_.sends[to[i].index];
      if (port.stream_data == 0) return nullptr;
      if (peers++ == 0) first = &port;
    }
    return peers > 1 && 2 * largest <= first->size ? first : nullptr;
  }

  WEFT_HD uint64_t largest_message(const ProgramStep& step) const {
    return kFifoAlign + fifo_round(op_.slice * op_.element * static_cast<uint64_t>(step.count));
  }

  // Makes sure that a header fits. Also makes sure that the next message in the shared ring does
  // not overwrite data that a message of this port still points to. A pointing message takes one
  // header. One more message's room may be lost when the ring's end is skipped.
  WEFT_HD bool reserve_reference(SendPort& port, const SendPort& shared, const ProgramStep& step) {
    const uint64_t largest = largest_message(step);
    const auto fits = [&] {
      const uint64_t under_way = port.tail - port.head_seen;
      return port.size - under_way >= kFifoAlign &&
             (under_way / kFifoAlign + 2) * largest <= shared.size;
    };
    if (fits()) return true;
    port.head_seen = target_.load(&port.control->head);
    return fits();
  }

  // The operand whose memory holds the step's result for receivers to read, or nullptr.
  WEFT_HD const ProgramOperand* lent_operand(const ProgramStep& step, uint64_t bytes) const {
    if (!step.lendable || bytes < op_.lend_from) return nullptr;
    if (bytes == 0) return nullptr;
    const ProgramOperand* operands = op_.program.operands + step.first_operand;
    const ProgramOperand* lent = nullptr;
    for (uint32_t i = 0; i < step.destinations && lent == nullptr; i++)
      if (operands[step.sources + i].buffer != ProgramBuffer::kPeer)
        lent = &operands[step.sources + i];
    if (lent == nullptr) {
      // Only the source itself is left. It cannot be lent if the message must differ from it.
      if (op_.reduction.premultiply && step.raw_sources != 0) return nullptr;
      lent = &operands[0];
    }
    return contiguous(step, *lent) ? lent : nullptr;
  }

  // Several chunks are contiguous only if they are whole blocks of the caller's buffer.
  WEFT_HD bool contiguous(const ProgramStep& step, const ProgramOperand& operand) const {
    return step.count == 1 ||
           (op_.program.chunks == 1 && op_.iterations == 1 && op_.stride == op_.count &&
            operand.buffer != ProgramBuffer::kScratch);
  }

  // The operand into which the network may write a message directly, without the ring. The step
  // must only copy the data.
  WEFT_HD const ProgramOperand* placed_operand(const ProgramStep& step) const {
    const ProgramOperand* from = op_.program.operands + step.first_operand;
    if (step.sources != 1 || from->buffer != ProgramBuffer::kPeer || step.coded) return nullptr;
    if (op_.reduction.premultiply && step.raw_sources != 0) return nullptr;
    for (uint32_t i = 1; i <= step.destinations; i++)
      if (from[i].buffer != ProgramBuffer::kPeer)
        return contiguous(step, from[i]) ? &from[i] : nullptr;
    return nullptr;
  }

  // Tells the network where the data of the next message should go.
  WEFT_HD void want(RecvPort& port, const ProgramStep& step, uint64_t bytes, uint64_t iteration) {
    if (!port.direct || port.control->wanted == port.head + 1) return;
    const ProgramOperand* placed = bytes >= op_.lend_from ? placed_operand(step) : nullptr;
    port.control->wanted_address =
        placed == nullptr ? 0 : reinterpret_cast<uint64_t>(local(*placed, 0, iteration));
    port.control->wanted_bytes = bytes;
    target_.store(&port.control->wanted, port.head + 1);
  }

  WEFT_HD bool lends(const SendPort& port, const ProgramOperand* lent) const {
    if (lent == nullptr || port.lending == Lending::kNever) return false;
    if (port.lending == Lending::kPointer) return true;
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) return block_of(*lent).segment != 0;
    return (lent->buffer == ProgramBuffer::kInput && op_.input_segment != 0) ||
           (lent->buffer == ProgramBuffer::kOutput && op_.output_segment != 0);
  }

  WEFT_HD Advance perform(LaneState& lane, const ProgramStep& step, uint64_t bytes) {
    const ProgramOperand* from = op_.program.operands + step.first_operand;
    const ProgramOperand* to = from + step.sources;
    const ProgramOperand* lent = lent_operand(step, bytes);
    const SendPort* shared = lent == nullptr ? shared_port(step) : nullptr;

    const std::byte* received[Target::kMostOperands];
    received[0] = nullptr;                   // silences a compiler warning
    const ProgramOperand* placed = nullptr;  // the network has written its data already
    for (uint32_t i = 0; i < step.sources; i++) {
      if (from[i].buffer != ProgramBuffer::kPeer) continue;
      RecvPort& port = *op_.receives[from[i].index];
      const bool here = receive(port, [&](const MessageHeader& header, const std::byte* data) {
        received[i] =
            open(lane, port, header, data, operand_bytes(step, from[i], lane.iteration, bytes),
                 call_bytes(step), from[i].codec);
        if (received[i] == nullptr || header.kind != MessageHeader::kDelivered) return;
        placed = placed_operand(step);
        received[i] = local(*placed, 0, lane.iteration);
      });
      if (!here) {
        want(port, step, bytes, lane.iteration);
        lane.waits_for = port.peer;
        lane.waits_to_send = false;
        return Advance::kBlocked;
      }
      if (received[i] == nullptr) return Advance::kFailed;
    }
    for (uint32_t i = 0; i < step.destinations; i++) {
      if (to[i].buffer != ProgramBuffer::kPeer) continue;
      SendPort& port = *op_.sends[to[i].index];
      if (shared != nullptr && &port != shared
              ? !reserve_reference(port, *shared, step)
              : !reserve(port, kFifoAlign + (lends(port, lent)
                                                 ? 0
                                                 : fifo_round(operand_bytes(
                                                       step, to[i], lane.iteration, bytes))))) {
        lane.waits_for = port.peer;
        lane.waits_to_send = true;
        return Advance::kBlocked;
      }
    }
    bool moved = false;
    if constexpr (Target::kDecodes)
      if (step.coded) {
        move_coded(lane, step, received);
        moved = true;
      }
    if (!moved) move(lane, step, lent, shared, placed, received);
    const uint64_t shared_data =
        shared == nullptr || bytes == 0 ? 0 : shared->stream_data + shared->at + kFifoAlign;
    for (uint32_t i = 0; i < step.sources; i++)
      if (from[i].buffer == ProgramBuffer::kPeer) consume(*op_.receives[from[i].index]);
    bool sends = false;
    for (uint32_t i = 0; i < step.destinations; i++) {
      if (to[i].buffer != ProgramBuffer::kPeer) continue;
      SendPort& port = *op_.sends[to[i].index];
      address(lane, port, lent, &port == shared ? 0 : shared_data,
              operand_bytes(step, to[i], lane.iteration, bytes), call_bytes(step), to[i].codec);
      sends = true;
    }
    if (!sends) return Advance::kAgain;
    target_.finish_writes();
    for (uint32_t i = 0; i < step.destinations; i++)
      if (to[i].buffer == ProgramBuffer::kPeer) post(*op_.sends[to[i].index]);
    return Advance::kAgain;
  }

  // Returns the data of a message. First checks that the peer's message belongs to the same call.
  WEFT_HD const std::byte* open(LaneState& lane, RecvPort& port, const MessageHeader& header,
                                const std::byte* data, uint64_t bytes, uint64_t of_call,
                                uint8_t codec) {
    if (header.bytes != bytes || header.codec != codec || header.sequence != op_.sequence ||
        header.collective != op_.collective || header.call_bytes != of_call ||
        header.root != op_.root || header.plan != op_.plan ||
        header.type != static_cast<uint8_t>(op_.reduction.type) ||
        header.op != static_cast<uint8_t>(op_.reduction.op)) {
      lane.failure = LaneState::Failure::kMismatch;
      lane.waits_for = port.peer;
      lane.seen = header;
      return nullptr;
    }
    if (header.kind == MessageHeader::kInline || header.kind == MessageHeader::kDelivered)
      return data;
    if (target_.load(&port.control->closed) != 0) {
      lane.failure = LaneState::Failure::kClosed;
      lane.waits_for = port.peer;
      return nullptr;
    }
    if (header.kind == MessageHeader::kPointer)
      return reinterpret_cast<const std::byte*>(header.address);
    const std::byte* base = target_.map(port, header.segment);
    if (base == nullptr) {
      lane.failure = LaneState::Failure::kNoSegment;
      lane.waits_for = port.peer;
      lane.seen = header;
      return nullptr;
    }
    return base + header.address;
  }

  // Reads every source, reduces, and writes the destinations, chunk by chunk. Destinations that are
  // lent, shared or already filled by the network are left out.
  WEFT_HD void move(const LaneState& lane, const ProgramStep& step, const ProgramOperand* lent,
                    const SendPort* shared, const ProgramOperand* placed,
                    const std::byte* const* received) {
    const ProgramOperand* from = op_.program.operands + step.first_operand;
    const ProgramOperand* to = from + step.sources;
    uint64_t offset = 0;
    for (int32_t c = 0; c < step.count; c++) {
      const uint64_t elements = slice_elements(step, c, lane.iteration);
      if (elements == 0) continue;
      const std::byte* sources[Target::kMostOperands];
      for (uint32_t i = 0; i < step.sources; i++)
        sources[i] = from[i].buffer == ProgramBuffer::kPeer ? received[i] + offset
                                                            : local(from[i], c, lane.iteration);
      std::byte* destinations[Target::kMostOperands + 1];
      uint32_t written = 0;
      const auto flush = [&] {
        if (written > 0)
          target_.combine(op_.reduction, sources, step.sources, step.raw_sources, step.completes,
                          destinations, written, elements);
        written = 0;
      };
      for (uint32_t i = 0; i < step.destinations; i++) {
        if (to[i].buffer == ProgramBuffer::kPeer) {
          SendPort& port = *op_.sends[to[i].index];
          if (lends(port, lent) || (shared != nullptr && &port != shared)) continue;
          destinations[written++] = port.data + port.at + kFifoAlign + offset;
        } else if (&to[i] != placed) {
          destinations[written++] = local(to[i], c, lane.iteration);
        }
        if (written == Target::kMostOperands) flush();
      }
      flush();
      offset += elements * op_.element;
    }
  }

  // As move(), for a step with codecs. Nothing is lent or shared there. Every chunk is encoded by
  // itself.
  WEFT_HD void move_coded(const LaneState& lane, const ProgramStep& step,
                          const std::byte* const* received) {
    const ProgramOperand* operands = op_.program.operands + step.first_operand;
    uint64_t offsets[2 * Target::kMostOperands] = {};
    for (int32_t c = 0; c < step.count; c++) {
      const uint64_t elements = slice_elements(step, c, lane.iteration);
      if (elements == 0) continue;
      typename Target::Coded coded[2 * Target::kMostOperands];
      for (uint32_t i = 0; i < uint32_t{step.sources} + step.destinations; i++) {
        const ProgramOperand& operand = operands[i];
        const CodecSpec* codec =
            operand.codec == 0 ? nullptr : &op_.program.codecs[operand.codec - 1];
        const bool message = operand.buffer == ProgramBuffer::kPeer;
        std::byte* data = nullptr;
        if (!message) {
          data = local(operand, c, lane.iteration);
        } else if (i < step.sources) {
          data = const_cast<std::byte*>(received[i]) + offsets[i];
        } else {
          const SendPort& port = *op_.sends[operand.index];
          data = port.data + port.at + kFifoAlign + offsets[i];
        }
        coded[i] = {data, codec, message};
        offsets[i] += codec == nullptr ? elements * op_.element
                                       : encoded_bytes(*codec, elements, op_.element);
      }
      target_.combine_coded(op_.reduction, coded, step.sources, step.raw_sources, step.completes,
                            coded + step.sources, step.destinations, elements,
                            losses(step, c, lane.iteration));
    }
  }

  // Where a step keeps what its encoding loses: with the caller's input that it sums, or with the
  // output that it writes. nullptr: nowhere. At most one step of a rank sums an input chunk and
  // encodes the sum, and at most one completes an output chunk.
  WEFT_HD float* losses(const ProgramStep& step, int32_t c, uint64_t k) const {
    if (op_.input_losses == nullptr) return nullptr;
    const ProgramOperand* operands = op_.program.operands + step.first_operand;
    for (uint32_t i = 0; i < step.sources; i++)
      if (operands[i].buffer == ProgramBuffer::kInput && (step.raw_sources >> i & 1u) != 0)
        return op_.input_losses + element_offset(operands[i], c, k, op_.count);
    for (uint32_t i = step.sources; i < uint32_t{step.sources} + step.destinations; i++)
      if (operands[i].buffer == ProgramBuffer::kOutput && step.completes)
        return op_.output_losses + element_offset(operands[i], c, k, op_.count);
    return nullptr;
  }

  WEFT_HD void consume(RecvPort& port) {
    port.head += port.taken;
    port.at = further(port.at, port.taken, port.size);
    target_.store_head(&port.control->head, port.head);
    target_.ring(port.bell);
  }

  // Writes the header of a message whose data is in place. `shared_data`: where in the stream the
  // data is, 0 if it is not shared.
  WEFT_HD void address(LaneState& lane, SendPort& port, const ProgramOperand* lent,
                       uint64_t shared_data, uint64_t bytes, uint64_t of_call, uint8_t codec) {
    auto* header = reinterpret_cast<MessageHeader*>(port.data + port.at);
    MessageHeader message = header_for(op_, bytes);
    message.codec = codec;
    message.call_bytes = of_call;
    if (shared_data != 0) {
      message.kind = MessageHeader::kPointer;
      message.address = shared_data;
    } else if (lends(port, lent)) {
      if (port.lending == Lending::kPointer) {
        message.kind = MessageHeader::kPointer;
        message.address = reinterpret_cast<uint64_t>(local(*lent, 0, lane.iteration));
      } else {
        message.kind = MessageHeader::kSegment;
        point_into_segment(message, *lent, lane.iteration);
      }
    } else {
      message.kind = MessageHeader::kInline;
    }
    *header = message;
    port.tail += footprint(message);
    port.at = further(port.at, footprint(message), port.size);
    if (message.kind != MessageHeader::kInline) {
      port.lent_until = port.tail;
      lane.lent = true;
    }
  }

  WEFT_HD void point_into_segment(MessageHeader& message, const ProgramOperand& lent,
                                  uint64_t k) const {
    if constexpr (Target::kIrregular)
      if (op_.inputs != nullptr) {
        const IrregularBlock& block = block_of(lent);
        message.segment = block.segment;
        message.address = block.offset + k * block.slice * op_.element;
        return;
      }
    const bool input = lent.buffer == ProgramBuffer::kInput;
    message.segment = input ? op_.input_segment : op_.output_segment;
    message.address = (input ? op_.input_offset : op_.output_offset) + local_offset(lent, 0, k);
  }

  WEFT_HD void post(SendPort& port) {
    target_.store_tail(&port.control->tail, port.tail);
    target_.ring(port.bell);
  }

  // A lane that lent or shared data is done when the receivers have read all of it.
  WEFT_HD Advance drain(LaneState& lane) {
    if (!lane.lent) return Advance::kDone;
    const ProgramLane& program_lane = op_.program.lanes[lane.lane];
    for (uint32_t n = 0; n < program_lane.steps; n++) {
      const ProgramStep& step = op_.program.steps[program_lane.first_step + n];
      const ProgramOperand* to = op_.program.operands + step.first_operand + step.sources;
      for (uint32_t i = 0; i < step.destinations; i++) {
        if (to[i].buffer != ProgramBuffer::kPeer) continue;
        SendPort& port = *op_.sends[to[i].index];
        if (port.head_seen >= port.lent_until) continue;
        port.head_seen = target_.load(&port.control->head);
        if (port.head_seen >= port.lent_until) continue;
        lane.waits_for = port.peer;
        lane.waits_to_send = true;
        return Advance::kBlocked;
      }
    }
    lane.lent = false;
    return Advance::kDone;
  }

  const Operation& op_;
  Target& target_;
};

}  // namespace weft
