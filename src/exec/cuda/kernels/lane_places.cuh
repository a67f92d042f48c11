// Where the operands of a lane's item are: addresses, words and lengths.
#pragma once

#include "src/exec/cuda/kernels/ptx.cuh"
#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// A lane and an instance of it, and how far this block has come with it. In shared memory.
struct alignas(16) LaneItem {
  const LaneHead* lane;
  LaneEnd* ends;
  LaneLength* lengths;
  uint32_t number, instance;  // number: of the lane
  uint32_t call;
  uint32_t step, iteration, iterations;
};
static_assert(sizeof(LaneItem) == kLaneItemBytes);

class LanePlaces {
 public:
  __device__ LanePlaces(const LaneArguments& a, const LaneItem& item) : a_(a), item_(item) {}

  __device__ const LaneData& data() const { return item_.lane->own ? item_.lane->data : a_.data; }
  __device__ Credit& credit(const LanePort& port) const {
    return port.credits[number_of(port.credit_position)];
  }

  // All threads of a block: the item's operands and lengths, for its first iteration.
  __device__ void resolve() const {
    const LaneHead& lane = *item_.lane;
    const auto* steps = lane.at<LaneStep>(sizeof(LaneHead));
    for (uint32_t s = threadIdx.x; s < lane.steps; s += blockDim.x) {
      const LaneStep& step = steps[s];
      item_.lengths[s] = length(step);
      const uint32_t ends = uint32_t{step.sources} + step.destinations;
      for (uint32_t i = step.first_operand; i < step.first_operand + ends; i++)
        item_.ends[i] = resolved(lane.at<LaneOperand>(lane.operands_at)[i],
                                 i < step.first_operand + step.sources);
    }
  }

  // The consumer has said where its output is.
  __device__ void settle(LaneEnd& end, const LaneOperand& operand, const LanePort& port,
                         uint64_t place) const {
    end.pending = false;
    if (!is_straight(operand, port, place)) return;
    std::byte* base = operand.straight == LaneOperand::kScratch ? port.pool + a_.scratch_at
                                                                : locate(port, place);
    put(end, base + offset(operand.straight, static_cast<uint32_t>(operand.index)));
    end.kind = LaneEnd::kStraight;
  }

  // The data of chunk c of a step, which begins `before` bytes (of packets: packets) into messages.
  __device__ std::byte* of_chunk(const LaneEnd& end, uint32_t operand, uint32_t c,
                                 uint64_t before) const {
    if (c == 0) return end.at;
    if (end.kind == LaneEnd::kSlot) return end.at + before;
    if (end.kind == LaneEnd::kPacket) return end.at + before * sizeof(Packet);
    const LaneOperand& o = item_.lane->at<LaneOperand>(item_.lane->operands_at)[operand];
    const LaneOperand::Kind kind = o.kind == LaneOperand::kMessage ? o.straight : o.kind;
    const auto index = static_cast<uint32_t>(o.index);
    return end.at + (offset(kind, index + c) - offset(kind, index));
  }
  // Elements of chunk c of a step, and what comes before it in messages.
  __device__ uint64_t length_of(const LaneStep& step, uint32_t c) const {
    const LaneData& d = data();
    const uint64_t in_chunk = chunk_length(sub_of(step, c)), begin = slice_begin();
    if (begin >= in_chunk) return 0;
    return in_chunk - begin < d.slice ? in_chunk - begin : d.slice;
  }
  __device__ uint64_t before(const LaneStep& step, uint32_t c) const {
    uint64_t all = 0;
    for (uint32_t k = 0; k < c; k++) {
      const uint64_t bytes = length_of(step, k) * a_.element;
      all += a_.packets ? (bytes + 7) / 8 : bytes;
    }
    return all;
  }

  // To the next iteration.
  static __device__ void advance(LaneEnd& end, uint32_t slots, uint32_t slot_bytes) {
    end.next += end.per_iteration;
    if (end.kind != LaneEnd::kSlot) {
      end.at += end.advance;
      return;
    }
    const uint32_t slot = end.slot;
    end.slot = slot + end.slot_step < slots ? slot + end.slot_step : slot + end.slot_step - slots;
    end.at += (int64_t{end.slot} - int64_t{slot}) * slot_bytes;
  }

 private:
  __device__ uint32_t number_of(uint32_t position) const {
    return position * a_.word_instances + item_.instance;
  }
  // In elements, from the begin of a chunk.
  __device__ uint64_t slice_begin() const {
    const LaneData& d = data();
    return (uint64_t{item_.iteration} * d.instances + item_.instance) * d.slice;
  }
  __device__ int32_t sub_of(const LaneStep& step, uint32_t c) const {
    const int32_t sub = step.sub + static_cast<int32_t>(c);
    return sub < a_.chunks ? sub : sub % a_.chunks;
  }
  __device__ uint64_t chunk_length(int32_t sub) const {
    const LaneData& d = data();
    const uint64_t first = static_cast<uint64_t>(sub) * d.chunk;
    if (first >= d.count) return 0;
    return d.count - first < d.chunk ? d.count - first : d.chunk;
  }
  // Of the step's first chunk.
  __device__ LaneLength length(const LaneStep& step) const {
    const LaneData& d = data();
    const uint64_t in_chunk = chunk_length(sub_of(step, 0)), skipped = item_.instance * d.slice;
    if (in_chunk <= skipped) return {};
    const uint64_t stride = d.slice * d.instances, rest = in_chunk - skipped;
    LaneLength length;
    length.full = static_cast<uint32_t>(rest / stride);
    length.rest = rest - length.full * stride;
    if (length.rest >= d.slice) {
      length.full++;
      length.rest = 0;
    }
    return length;
  }
  // In bytes from the begin of a buffer, in this iteration.
  __device__ uint64_t offset(LaneOperand::Kind kind, uint32_t index) const {
    const LaneData& d = data();
    if (kind == LaneOperand::kScratch) return (index * d.chunk + slice_begin()) * a_.element;
    const auto chunks = static_cast<uint32_t>(a_.chunks);
    const uint32_t block = chunks == 1 ? index : index / chunks;
    return (block * d.stride + d.begin + (index - block * chunks) * d.chunk + slice_begin()) *
           a_.element;
  }
  __device__ std::byte* memory(LaneOperand::Kind kind, uint32_t index) const {
    const LaneData& d = data();
    std::byte* base = kind == LaneOperand::kInput    ? const_cast<std::byte*>(d.input)
                      : kind == LaneOperand::kOutput ? d.output
                                                     : a_.pool + a_.scratch_at;
    return base + offset(kind, index);
  }
  // Whether the producer writes a message straight to `operand.straight`. Both ends decide alike.
  // `place`: what the consumer grants.
  __device__ bool is_straight(const LaneOperand& operand, const LanePort& port,
                              uint64_t place) const {
    if (operand.straight == LaneOperand::kMessage || port.reachable == 0 || a_.packets)
      return false;
    return operand.straight == LaneOperand::kScratch || place != kPrivate;
  }
  __device__ static std::byte* locate(const LanePort& port, uint64_t place) {
    if (port.registrations == nullptr) return reinterpret_cast<std::byte*>(place);
    const uint64_t* mapped = port.registrations + ((place >> kOffsetBits) - 1);
    return reinterpret_cast<std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                        (place & ((uint64_t{1} << kOffsetBits) - 1)));
  }
  // Memory that moves on with every slice.
  __device__ void put(LaneEnd& end, std::byte* at) const {
    const LaneData& d = data();
    end.at = at;
    end.advance = static_cast<uint32_t>(d.slice * d.instances * a_.element);
    end.aligned = (reinterpret_cast<uintptr_t>(at) | end.advance) % 16 == 0;
  }

  __device__ LaneEnd resolved(const LaneOperand& operand, bool receives) const {
    LaneEnd end;
    end.raw = operand.raw;
    if (operand.kind != LaneOperand::kMessage) {
      put(end, memory(operand.kind, static_cast<uint32_t>(operand.index)));
      return end;
    }
    const LaneHead& lane = *item_.lane;
    const LanePort& port =
        lane.at<LanePort>(receives ? lane.receives_at : lane.sends_at)[operand.port];
    Tail& tail = port.tails[number_of(port.position)];
    end.message = true;
    end.port = static_cast<uint16_t>(operand.port);
    end.word = receives ? &tail.tail : &credit(port).head;
    end.told = receives ? &credit(port).head : &tail.tail;
    end.next = call_word(item_.call, operand.order + 1);
    end.per_iteration = port.per_iteration;
    end.pending = !receives;
    end.slot = operand.order % a_.slots;
    end.slot_step = port.per_iteration % a_.slots;
    end.aligned = true;
    const uint64_t slot = uint64_t{number_of(port.position)} * a_.slots + end.slot;
    if (a_.packets) {
      end.kind = LaneEnd::kPacket;
      end.at = reinterpret_cast<std::byte*>(port.packets) + slot * a_.slot_bytes;
    } else if (receives && is_straight(operand, port, data().output_place)) {
      put(end, memory(operand.straight, static_cast<uint32_t>(operand.index)));
      end.kind = LaneEnd::kStraight;
    } else {
      end.kind = LaneEnd::kSlot;
      end.at = port.pool + slot * a_.slot_bytes;
    }
    return end;
  }

  const LaneArguments& a_;
  const LaneItem& item_;
};

}  // namespace weft::cuda
