// The interpreter of programs with FIFOs, with the low-latency protocol. Every thread block runs
// all steps on its own part of every chunk, and communicates only with the same block of its peers.
// A thread moves eight bytes at a time from all sources of a step to all its destinations.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/packets.cuh"

namespace weft::cuda {

// Shared by the threads of a block while it runs a program.
struct PacketState {
  PacketPorts ports;
  bool stopped;
};

template <typename Type, typename Op>
class PacketRunner {
 public:
  __device__ PacketRunner(const PacketArguments& a, PacketState& shared)
      : a_(a), comm_(a.comm), shared_(shared) {}

  __device__ void run() {
    for (uint32_t slice = 0; slice < a_.slices; slice++) {
      for (uint32_t n = 0; n < a_.step_count;) {
        const PacketStep& step = a_.step(n);
        const uint32_t moves = step.run;
        const bool takes = step.takes;
        move(n, moves, slice);
        __syncthreads();
        if (shared_.stopped) return;
        // Here and not at the end, because the sent packets are usually still in flight.
        if (n == 0 && slice == 0) keep_counters();
        if (takes) give_back(n, moves, slice);
        n += moves;
      }
    }
  }

 private:
  using Element = typename Type::Element;
  static constexpr int kCount = 8 / sizeof(Element);

  // A thread's position: word p of this block's part of a slice.
  struct Position {
    uint32_t slice, p;
    uint32_t left;    // bytes from here on
    uint64_t memory;  // bytes from the start of the chunk
  };

  // Moves the words of several steps in parallel.
  __device__ __forceinline__ void move(uint32_t n, uint32_t moves, uint32_t slice) {
    const uint32_t part = a_.part_bytes, stride = (part + 7) / 8, begin = blockIdx.x * part;
    const uint64_t sliced = slice * a_.slice_bytes;
    for (uint32_t i = threadIdx.x; i < moves * stride; i += blockDim.x) {
      const uint32_t j = moves == 1 ? 0 : i / stride;
      const PacketStep& step = a_.step(n + j);
      Position at{slice, i - j * stride, 0, 0};
      const uint64_t rest = step.bytes > sliced ? step.bytes - sliced : 0;
      const auto length = static_cast<uint32_t>(rest < a_.slice_bytes ? rest : a_.slice_bytes);
      const uint32_t end = length < begin + part ? length : begin + part;
      const uint32_t here = begin + at.p * 8;
      at.left = end > here ? end - here : 0;
      at.memory = sliced + here;
      // An empty message is a packet without data: peers rely on the order it creates.
      if (at.left == 0 && at.p > 0) continue;
      uint64_t word = 0;
      if (!take(step, at, word) || !give(step, at, word)) {
        shared_.stopped = true;
        return;
      }
    }
  }

  __device__ std::byte* memory(const PacketOperand& operand, const Position& at) const {
    return operand.base + at.memory -
           (operand.kind == PacketOperand::kScratch ? at.slice * a_.slice_bytes : 0);
  }
  __device__ std::byte* packet(const PacketOperand& operand, uint32_t flag, uint32_t p) const {
    return operand.base +
           (PacketPorts::slot_offset(a_.ports, flag) + p * static_cast<uint32_t>(sizeof(Packet)));
  }
  // The operand's message is the n-th on its port in this kernel.
  static __device__ uint32_t number(const PacketOperand& operand, uint32_t slice) {
    return slice * operand.per_slice + operand.before + 1;
  }

  // The step's result for one word: a copy, or the reduction of all sources.
  __device__ __forceinline__ bool take(const PacketStep& step, const Position& at, uint64_t& word) {
    const bool scaled = kSums<Op> && a_.reduction.premultiply && step.raw_sources != 0;
    if (step.sources == 1 && !scaled) {
      PacketEnd ends[1];
      uint64_t words[1];
      look(step, 0, at, ends[0], words[0]);
      if (ends[0].message && !wait_for_words<1>(
                                 comm_, [&](int) { return ends[0]; }, a_.signature, words))
        return false;
      word = words[0];
      return true;
    }
    if constexpr (std::is_same_v<Type, Bytes>) {
      return true;  // Bytes are only copied
    } else {
      // Instructions determine the time here. So there are versions for two and four sources.
      typename Type::Accumulator sum[kCount];
      bool there = true;
      if (step.sources <= 2) {
        there = accumulate<2>(step, at, 0, scaled, sum);
      } else if (step.sources <= 4) {
        there = accumulate<4>(step, at, 0, scaled, sum);
      } else {
        for (int first = 0; there && first < step.sources; first += 8)
          there = accumulate<8>(step, at, first, scaled, sum);
      }
      if (there) word = finish(step, sum);
      return there;
    }
  }

  __device__ __forceinline__ void look(const PacketStep& step, int source, const Position& at,
                                       PacketEnd& end, uint64_t& word) {
    const PacketOperand& operand = a_.operand(step.first_operand + source);
    end.port = operand.port;
    end.message = operand.kind == PacketOperand::kMessage;
    if (end.message) {
      end.flag = shared_.ports.received(operand.port, number(operand, at.slice));
      end.at = packet(operand, end.flag, at.p);
    } else {
      word = at.left > 0 ? load_word(memory(operand, at), at.left) : 0;
    }
  }

  template <int Batch>
  __device__ __forceinline__ bool accumulate(const PacketStep& step, const Position& at, int first,
                                             bool scaled,
                                             typename Type::Accumulator (&sum)[kCount]) {
    const int count = step.sources - first;
    PacketEnd ends[Batch];
    uint64_t words[Batch];
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      ends[b].message = false;
      if (b < count) look(step, first + b, at, ends[b], words[b]);
    }
    if (!wait_for_words<Batch>(
            comm_, [&](int b) { return ends[b]; }, a_.signature, words))
      return false;
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      if (b >= count) continue;
      Element e[kCount];
      memcpy(e, &words[b], 8);
      if (scaled && ((step.raw_sources >> (first + b)) & 1) != 0)
        for (int i = 0; i < kCount; i++) e[i] = scale<Type>(e[i], a_.reduction.scalar_bits);
#pragma unroll
      for (int i = 0; i < kCount; i++)
        sum[i] = first + b == 0 ? Type::load(e[i])
                                : apply<Op>(sum[i], Type::load(e[i]), a_.reduction.op);
    }
    return true;
  }

  __device__ __forceinline__ uint64_t finish(const PacketStep& step,
                                             typename Type::Accumulator (&sum)[kCount]) const {
    Element e[kCount];
    const uint32_t divide_by = kSums<Op> && step.completes ? a_.reduction.divide_by : 0;
#pragma unroll
    for (int i = 0; i < kCount; i++)
      e[i] = Type::store(divide_by > 0 ? divide(sum[i], divide_by) : sum[i]);
    uint64_t word;
    memcpy(&word, e, 8);
    return word;
  }

  __device__ __forceinline__ bool give(const PacketStep& step, const Position& at, uint64_t word) {
    const uint32_t first = step.first_operand + step.sources;
#pragma unroll 4
    for (uint32_t d = first; d < first + step.destinations; d++) {
      const PacketOperand& operand = a_.operand(d);
      if (operand.kind != PacketOperand::kMessage) {
        if (at.left > 0) store_word(memory(operand, at), at.left, word);
        continue;
      }
      const uint32_t flag = shared_.ports.sent(operand.port, number(operand, at.slice));
      if (!shared_.ports.wait_for_room(comm_, operand.port, flag)) return false;
      store_packet(reinterpret_cast<Packet*>(packet(operand, flag, at.p)),
                   static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), flag,
                   flag ^ a_.signature);
    }
    return true;
  }

  // Called when all threads have read their messages. Returns the room to the peers, one thread per
  // operand of the run.
  __device__ void give_back(uint32_t n, uint32_t moves, uint32_t slice) {
    const uint32_t first = a_.step(n).first_operand;
    const PacketStep& last = a_.step(n + moves - 1);
    const uint32_t end = last.first_operand + last.sources + last.destinations;
    for (uint32_t o = first + threadIdx.x; o < end; o += blockDim.x) {
      const PacketOperand& operand = a_.operand(o);
      if (operand.kind == PacketOperand::kMessage && operand.receives)
        PacketPorts::give_back(comm_, operand.port,
                               shared_.ports.received(operand.port, number(operand, slice)));
    }
  }

  // The last message of each port in a slice gives the port's count.
  __device__ void keep_counters() {
    for (uint32_t o = threadIdx.x; o < a_.operand_count; o += blockDim.x) {
      const PacketOperand& operand = a_.operand(o);
      if (operand.kind != PacketOperand::kMessage || operand.before + 1 != operand.per_slice)
        continue;
      const uint32_t n = a_.slices * operand.per_slice;
      if (operand.receives) {
        PacketPorts::keep_received(a_.mine, a_.ports, operand.port,
                                   shared_.ports.received(operand.port, n));
      } else {
        PacketPorts::keep_sent(a_.mine, a_.ports, operand.port,
                               shared_.ports.sent(operand.port, n));
      }
    }
  }

  const PacketArguments& a_;
  const DeviceComm& comm_;
  PacketState& shared_;
};

template <typename Type, typename Op>
__global__ void __launch_bounds__(kPacketThreads, 1)
    packet_kernel(const __grid_constant__ PacketArguments arguments) {
  __shared__ PacketState shared;
  alignas(16) __shared__ std::byte copy[sizeof(PacketArguments)];
  auto& a = *reinterpret_cast<PacketArguments*>(copy);
  if (arguments.mine == nullptr) return;  // only launched to be loaded
  const uint32_t ports = arguments.ports;
  const uint4 counters = PacketPorts::ask(arguments.mine, ports);
  Parameters parameters;
  parameters.load(&arguments, arguments.bytes);
  parameters.store(&a);
  shared.ports.take(counters, ports);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  PacketRunner<Type, Op>(a, shared).run();
}

}  // namespace weft::cuda
