// Where the operands of a lane's item are: addresses, words and lengths.
#pragma once

#include "src/exec/cuda/kernels/ptx.cuh"
#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// A lane and an instance of it, and how far this block has come with it.
struct alignas(16) LaneItem {
  const LaneHead* lane;
  LaneEnd* ends;              // by operand
  std::byte** at;             // by operand: its data in this iteration
  LaneLength* lengths;        // by step
  uint32_t number, instance;  // number: of the lane
  uint32_t call;
  uint32_t step, iteration, iterations;
  bool granted;  // by the consumers of all its messages
  bool arrives;  // nothing is to be done but to wait for its messages
  bool packets;  // its messages are packets
};

// What the next step of an item waits for: this word to have this value at least. nullptr: not
// known.
struct alignas(16) LaneWait {
  const uint64_t* word = nullptr;
  uint64_t value = 0;
};
static_assert(sizeof(LaneItem) == kLaneItemBytes && sizeof(LaneWait) == kLaneWaitBytes);

class LanePlaces {
 public:
  __device__ LanePlaces(const LaneArguments& a, const LaneItem& item)
      : a_(a), item_(item), d_(item.lane->own ? item.lane->data : a.data) {}

  __device__ const LaneData& data() const { return d_; }
  __device__ uint32_t call() const { return item_.call; }
  __device__ bool is_message() const { return item_.lane->own; }  // of send/recv
  __device__ Credit& credit(const LanePort& port) const {
    return port.credits[number_of(port.credit_position)];
  }
  __device__ Packet* grant(const LanePort& port) const { return grant(port, item_.call); }
  __device__ Packet* grant(const LanePort& port, uint32_t call) const {
    return item_.lane->own ? &credit(port).grant : grant(a_, port, call);
  }
  __device__ static Packet* grant(const LaneArguments& a, const LanePort& port, uint32_t call) {
    return port.grant + (call & 1) * a.ranks;
  }
  // Whether the port's messages may come before the consumer has entered the call.
  __device__ bool is_eager(const LanePort& port) const {
    return is_eager() && (item_.lane->own || port.post != nullptr);
  }
  // What this rank tells a producer.
  __device__ uint64_t granted_place(const LanePort& port) const { return granted_place(d_, port); }
  __device__ static uint64_t granted_place(const LaneData& d, const LanePort& port) {
    if (port.post == nullptr) return d.output_place;
    return d.nic_output ? reinterpret_cast<uint64_t>(d.output) : kPrivate;
  }

  // Threads `first`, `first + stride`...: the item's operands and lengths, for its first iteration.
  // Messages that this rank sends go through slots until settle().
  __device__ void resolve(uint32_t first, uint32_t stride) const {
    const LaneHead& lane = *item_.lane;
    const auto* steps = lane.at<LaneStep>(sizeof(LaneHead));
    const auto* operands = lane.at<LaneOperand>(lane.operands_at);
    for (uint32_t s = first; s < lane.steps; s += stride) {
      LaneLength length = length_of_first(steps[s]);
      for (uint32_t i = 0; i < steps[s].sources && a_.reduction.premultiply; i++)
        if (operands[steps[s].first_operand + i].raw) length.scaled |= uint64_t{1} << i;
      item_.lengths[s] = length;
    }
    const uint32_t sources = lane.operands;
    for (uint32_t i = first; i < sources; i += stride)
      item_.at[i] = resolve(operands[i], item_.ends[i]);
  }

  // Threads `first`, `first + stride`...: all consumers have said where their outputs are.
  __device__ void settle(uint32_t first, uint32_t stride) const {
    const LaneHead& lane = *item_.lane;
    const auto* operands = lane.at<LaneOperand>(lane.operands_at);
    const auto* ports = lane.at<LanePort>(lane.sends_at);
    for (uint32_t i = first; i < lane.operands; i += stride) {
      const LaneOperand& operand = operands[i];
      if (operand.kind != LaneOperand::kMessage || operand.receives) continue;
      const LanePort& port = ports[operand.port];
      if (port.post != nullptr && operand.lends) lend(i, operand.place);
      if (!may_be_straight(operand, port)) continue;
      const Packet granted = load_packet(grant(port));
      const uint64_t place = uint64_t{granted.data1} << 32 | granted.data0;
      if (!is_straight(operand, port, place)) continue;
      if (port.post != nullptr) {
        item_.ends[i].place = place + offset(operand.straight, operand.block, operand.index);
        item_.ends[i].advance = advance();
        continue;
      }
      std::byte* base = operand.straight == LaneOperand::kScratch ? port.pool + a_.scratch_at
                                                                  : locate(port, place);
      item_.at[i] = base + offset(operand.straight, operand.block, operand.index);
      go_with_memory(item_.ends[i], item_.at[i]);
      item_.ends[i].kind = LaneEnd::kStraight;
      item_.ends[i].free = is_free(port, place);
    }
  }

  // Whether all messages of the item go straight to where they belong.
  __device__ bool only_arrives() const {
    const LaneHead& lane = *item_.lane;
    if (!lane.only_arrives || item_.packets) return false;
    const auto* ports = lane.at<LanePort>(lane.receives_at);
    for (uint32_t r = 0; r < lane.receives; r++)
      if (ports[r].post != nullptr || !is_free(ports[r], granted_place(ports[r]))) return false;
    return true;
  }
  // Where the number of a port's messages is, and what it is when all have come.
  __device__ const uint64_t* tail(const LanePort& port) const {
    return &port.tails[number_of(port.position)].tail;
  }
  __device__ uint64_t last(const LanePort& port) const {
    return call_word(item_.call, uint64_t{item_.iterations} * port.per_iteration);
  }

  // The data of chunk c of a step, which begins `before` bytes (of packets: packets) into messages.
  __device__ std::byte* of_chunk(uint32_t operand, uint32_t c, uint64_t before) const {
    std::byte* at = item_.at[operand];
    const LaneEnd& end = item_.ends[operand];
    if (c == 0) return at;
    if (end.kind == LaneEnd::kSlot) return at + before;
    if (end.kind == LaneEnd::kPacket) return at + before * sizeof(Packet);
    const LaneOperand& o = item_.lane->at<LaneOperand>(item_.lane->operands_at)[operand];
    const LaneOperand::Kind kind = o.kind == LaneOperand::kMessage ? o.straight : o.kind;
    int32_t block = o.block, index = o.index;
    go_to_chunk(kind, c, block, index);
    return at + (offset(kind, block, index) - offset(kind, o.block, o.index));
  }
  // Where a step keeps what chunk c loses, as Interpreter::losses() says; nullptr: nowhere.
  __device__ float* losses(const LaneStep& step, uint32_t c) const {
    if (a_.input_losses == nullptr) return nullptr;
    const auto* operands =
        item_.lane->at<LaneOperand>(item_.lane->operands_at) + step.first_operand;
    for (uint32_t i = 0; i < step.sources; i++)
      if (operands[i].kind == LaneOperand::kInput && operands[i].raw)
        return a_.input_losses + loss_offset(operands[i], c);
    for (uint32_t i = step.sources; i < uint32_t{step.sources} + step.destinations; i++)
      if (operands[i].kind == LaneOperand::kOutput && step.completes)
        return a_.output_losses + loss_offset(operands[i], c);
    return nullptr;
  }
  // What the proxy is told of a message: that this rank has consumed or produced it, and then its
  // data, `bytes` at `at`.
  __device__ LanePost post_of(const LaneOperand& operand, const LanePort& port, const LaneEnd& end,
                              uint64_t bytes, const std::byte* at) const {
    LanePost post;
    post.word = static_cast<uint32_t>(reinterpret_cast<uint64_t>(end.told) - kRemote);
    post.call = item_.call;
    post.value = static_cast<uint32_t>(end.next);
    if (operand.receives || bytes == 0) return post;
    post.bytes = static_cast<uint32_t>(bytes);
    if (large()) post.kind |= LanePost::kLarge;
    if (end.place != kPrivate) {
      post.to = end.place;
      post.kind |= LanePost::kToPlace;
    } else {
      post.to = reinterpret_cast<uint64_t>(port.pool) - kRemote + pool_offset(port, end.slot);
    }
    if (end.kind == LaneEnd::kLent) {
      post.from = reinterpret_cast<uint64_t>(at);
      post.kind |= LanePost::kFromPlace;
    } else {
      post.from = static_cast<uint64_t>(at - shift() - port.post->area);
    }
    return post;
  }

  // The same of a message in packets, `words` of them. Nobody has fenced them: a packet shows
  // itself when it is there.
  __device__ LanePost packet_post(const LanePort& port, const LaneEnd& end, uint64_t words,
                                  const std::byte* at) const {
    LanePost post;
    post.kind = LanePost::kPackets;
    post.call = item_.call;
    post.value = a_.signature;
    post.bytes = static_cast<uint32_t>(words * 8);
    post.to = reinterpret_cast<uint64_t>(end.told) - kRemote;
    post.from = static_cast<uint64_t>(at - port.post->area);
    return post;
  }
  // Packets of a step's messages. A message without chunks has one, too.
  __device__ uint64_t packets(const LaneStep& step) const {
    return step.count == 0 ? 1 : before(step, static_cast<uint32_t>(step.count));
  }

  // Elements of chunk c of a step, and what comes before it in messages.
  __device__ uint64_t length_of(const LaneStep& step, uint32_t c) const {
    const uint64_t in_chunk = chunk_length(sub_of(step, c)), begin = slice_begin();
    if (begin >= in_chunk) return 0;
    return in_chunk - begin < d_.slice ? in_chunk - begin : d_.slice;
  }
  __device__ uint64_t before(const LaneStep& step, uint32_t c, uint8_t codec = 0) const {
    uint64_t all = 0;
    for (uint32_t k = 0; k < c; k++) {
      const uint64_t bytes =
          codec == 0 ? length_of(step, k) * a_.element
                     : encoded_bytes(a_.codecs[codec - 1], length_of(step, k), a_.element);
      all += !item_.packets ? bytes : bytes == 0 ? 1 : (bytes + 7) / 8;
    }
    return all;
  }

 private:
  __device__ uint32_t number_of(uint32_t position) const {
    return position * a_.word_instances + item_.instance;
  }
  // In elements, from the begin of a chunk.
  __device__ uint64_t slice_begin() const {
    return (uint64_t{item_.iteration} * d_.instances + item_.instance) * d_.slice;
  }
  __device__ int32_t sub_of(const LaneStep& step, uint32_t c) const {
    const int32_t sub = step.sub + static_cast<int32_t>(c);
    return sub < a_.chunks ? sub : sub % a_.chunks;
  }
  __device__ uint64_t chunk_length(int32_t sub) const {
    const uint64_t first = static_cast<uint64_t>(sub) * d_.chunk;
    if (first >= d_.count) return 0;
    return d_.count - first < d_.chunk ? d_.count - first : d_.chunk;
  }
  __device__ LaneLength length_of_first(const LaneStep& step) const {
    const uint64_t in_chunk = chunk_length(sub_of(step, 0)), skipped = item_.instance * d_.slice;
    LaneLength length;
    if (step.count == 0 || in_chunk <= skipped) return length;
    if (step.whole) {
      length.rest = static_cast<uint32_t>(step.count) * d_.chunk;
      return length;
    }
    const uint64_t rest = in_chunk - skipped;
    if (d_.iterations == 1) {
      length.rest = rest < d_.slice ? rest : d_.slice;
      return length;
    }
    const uint64_t stride = d_.slice * d_.instances;
    length.full = static_cast<uint32_t>(rest / stride);
    length.rest = rest - length.full * stride;
    if (length.rest >= d_.slice) {
      length.full++;
      length.rest = 0;
    }
    return length;
  }
  // In bytes from the begin of a buffer, in this iteration.
  __device__ uint64_t offset(LaneOperand::Kind kind, int32_t block, int32_t index) const {
    const uint64_t in_block = static_cast<uint32_t>(index) * d_.chunk + slice_begin();
    if (kind == LaneOperand::kScratch) return in_block * a_.element;
    return (static_cast<uint32_t>(block) * d_.stride + d_.begin + in_block) * a_.element;
  }
  __device__ void go_to_chunk(LaneOperand::Kind kind, uint32_t c, int32_t& block,
                              int32_t& index) const {
    index += static_cast<int32_t>(c);
    if (kind == LaneOperand::kScratch) return;
    block += index / a_.chunks;
    index %= a_.chunks;
  }
  // In elements. Blocks of losses lie one after the other.
  __device__ uint64_t loss_offset(const LaneOperand& operand, uint32_t c) const {
    int32_t block = operand.block, index = operand.index;
    go_to_chunk(operand.kind, c, block, index);
    return static_cast<uint32_t>(block) * a_.losses_stride + d_.begin +
           static_cast<uint32_t>(index) * d_.chunk + slice_begin();
  }
  __device__ std::byte* memory(LaneOperand::Kind kind, const LaneOperand& operand) const {
    std::byte* base = kind == LaneOperand::kInput    ? const_cast<std::byte*>(d_.input)
                      : kind == LaneOperand::kOutput ? d_.output
                                                     : a_.pool + a_.scratch_at;
    return base + offset(kind, operand.block, operand.index);
  }
  // Whether the producer writes a message straight to `operand.straight`. Both ends decide alike.
  // `place`: what the consumer grants.
  __device__ bool is_straight(const LaneOperand& operand, const LanePort& port,
                              uint64_t place) const {
    return may_be_straight(operand, port) &&
           (place != kPrivate ||
            (port.post == nullptr && operand.straight == LaneOperand::kScratch));
  }
  // The same of some place. To ask for it may take a round trip to the host's memory.
  __device__ bool may_be_straight(const LaneOperand& operand, const LanePort& port) const {
    if (operand.straight == LaneOperand::kMessage || item_.packets) return false;
    return port.post != nullptr ? operand.far && large() : port.reachable;
  }
  // Whether all messages of a port to a rank of this host are straight. Then the producer does not
  // wait for room, and the consumer does not tell of any: that would arrive in a later call.
  __device__ static bool is_free(const LanePort& port, uint64_t place) {
    return port.straight && port.reachable && place != kPrivate;
  }
  __device__ static std::byte* locate(const LanePort& port, uint64_t place) {
    if (port.registrations == nullptr) return reinterpret_cast<std::byte*>(place);
    const uint64_t* mapped = port.registrations + ((place >> kOffsetBits) - 1);
    return reinterpret_cast<std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                        (place & ((uint64_t{1} << kOffsetBits) - 1)));
  }
  // The NIC sends operand i, which is operand `before` of its step, from where the step's source
  // is.
  __device__ void lend(uint32_t i, uint32_t before) const {
    const uint32_t source = i - before;
    const LaneOperand& from = item_.lane->at<LaneOperand>(item_.lane->operands_at)[source];
    const bool input = from.kind == LaneOperand::kInput;
    if (!large() || !(input ? d_.nic_input : d_.nic_output)) return;
    if (from.raw && a_.reduction.premultiply) return;
    // What came through a slot is not in the output.
    if (from.kind == LaneOperand::kMessage && item_.ends[source].kind != LaneEnd::kStraight) return;
    item_.at[i] = item_.at[source];
    go_with_memory(item_.ends[i], item_.at[i]);
    item_.ends[i].kind = LaneEnd::kLent;
  }
  __device__ uint32_t advance() const {
    return static_cast<uint32_t>(d_.slice * d_.instances * a_.element);
  }
  // Memory moves on with every slice.
  __device__ void go_with_memory(LaneEnd& end, const std::byte* at) const {
    end.advance = advance();
    end.aligned = (reinterpret_cast<uintptr_t>(at) | end.advance) % 16 == 0;
  }

  __device__ std::byte* resolve(const LaneOperand& operand, LaneEnd& end) const {
    end = {};
    if (operand.kind != LaneOperand::kMessage) {
      std::byte* at = memory(operand.kind, operand);
      go_with_memory(end, at);
      return at;
    }
    const LaneHead& lane = *item_.lane;
    const LanePort& port =
        lane.at<LanePort>(operand.receives ? lane.receives_at : lane.sends_at)[operand.port];
    const bool eager = is_eager(port), own = lane.own;
    uint64_t* produced =
        &(eager && !own ? eager_tails(port) : port.tails)[number_of(port.position)].tail;
    end.word = operand.receives ? produced : &credit(port).head;
    end.told = operand.receives ? &credit(port).head : produced;
    end.next = eager ? eager_word(item_.call, a_.signature, operand.order + 1)
                     : call_word(item_.call, operand.order + 1);
    end.free = eager;
    end.per_iteration = port.per_iteration;
    end.peer = static_cast<int16_t>(port.peer);
    end.posted = port.post != nullptr;
    if (!item_.packets && operand.receives && is_straight(operand, port, granted_place(port))) {
      std::byte* at = memory(operand.straight, operand);
      go_with_memory(end, at);
      end.kind = LaneEnd::kStraight;
      end.free = port.post == nullptr && is_free(port, granted_place(port));
      return at;
    }
    const uint32_t slots = a_.slots;
    const uint32_t slot = operand.order < slots ? operand.order : operand.order % slots;
    if (item_.packets)
      return own ? small_message(operand, port, end) : packets_of(operand, port, slot, end);
    end.slot = static_cast<uint16_t>(slot);
    end.slot_step = static_cast<uint16_t>(end.per_iteration % slots);
    end.aligned = true;
    end.kind = LaneEnd::kSlot;
    if (end.posted)
      return (operand.receives ? port.pool + pool_offset(port, slot)
                               : port.outbox + slot_offset(port.credit_position, slot)) +
             shift();
    return port.pool + slot_offset(port.position, slot);
  }
  // A slot of packets. `told` of one that the proxy carries: where it goes.
  __device__ std::byte* packets_of(const LaneOperand& operand, const LanePort& port, uint32_t slot,
                                   LaneEnd& end) const {
    end.slot = static_cast<uint16_t>(slot);
    end.aligned = true;
    end.kind = LaneEnd::kPacket;
    std::byte* at = reinterpret_cast<std::byte*>(port.packets + eager_packets()) +
                    slot_offset(port.position, slot);
    if (!end.posted || operand.receives) return at;
    end.told = reinterpret_cast<uint64_t*>(at);
    return port.outbox + slot_offset(port.credit_position, slot);
  }
  __device__ uint32_t eager_packets() const {
    return a_.eager && (item_.call & 1) != 0 ? kEagerPackets : 0;
  }
  // The same of a message of send/recv.
  __device__ std::byte* small_message(const LaneOperand& operand, const LanePort& port,
                                      LaneEnd& end) const {
    const uint32_t half = (item_.call & 1) * a_.ranks, each = message_packets(a_.ranks);
    end.aligned = true;
    end.kind = LaneEnd::kPacket;
    auto* at = reinterpret_cast<std::byte*>(port.packets + uint64_t{half + port.position} * each);
    if (!end.posted || operand.receives) return at;
    end.told = reinterpret_cast<uint64_t*>(at);
    return port.outbox + a_.small_outbox_at +
           uint64_t{half + port.credit_position} * each * sizeof(Packet);
  }
  // Whether the item's messages to other hosts come before they are granted; of send/recv, all.
  __device__ bool is_eager() const { return item_.lane->own ? item_.packets : a_.eager; }
  // Whether messages are too large for frames (LanePost::kLarge). Both ends cut them alike.
  __device__ bool large() const { return !is_eager() && d_.slice * a_.element > a_.inline_bytes; }
  __device__ int64_t shift() const { return large() ? a_.gpu_shift : 0; }
  __device__ uint64_t slot_offset(uint32_t position, uint32_t slot) const {
    const uint64_t number = position * a_.word_instances + item_.instance * d_.wide;
    return (number * a_.slots + slot * d_.wide) * a_.slot_bytes;
  }
  // In the consumer's pool.
  __device__ uint64_t pool_offset(const LanePort& port, uint32_t slot) const {
    const uint64_t at = slot_offset(port.position, slot);
    return is_eager(port) ? at + a_.eager_at + (item_.call & 1) * a_.eager_bytes : at;
  }
  __device__ Tail* eager_tails(const LanePort& port) const {
    static_assert(offsetof(LaneWords, tails) == 0);
    return reinterpret_cast<LaneWords*>(port.tails)->eager_tails[item_.call & 1];
  }

  const LaneArguments& a_;
  const LaneItem& item_;
  const LaneData& d_;
};

}  // namespace weft::cuda
