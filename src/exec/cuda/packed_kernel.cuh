// The interpreter of programs with FIFOs, with the low-latency protocol: every thread block runs
// all steps on its own part of every chunk, and talks only to the same block of its peers. A thread
// moves eight bytes at a time from all sources of a step to all its destinations.
#pragma once

#include "src/exec/cuda/combine.cuh"
#include "src/exec/cuda/packed.cuh"

namespace weft::cuda {

// Shared by the threads of a block while it runs a program.
struct PackedState {
  PackedPorts ports;
  bool stopped;
};

template <typename Type, typename Op>
class PackedRunner {
 public:
  __device__ PackedRunner(const PackedArguments& a, PackedState& shared)
      : a_(a), comm_(a.comm), shared_(shared) {}

  __device__ void run() {
    for (uint32_t slice = 0; slice < a_.slices; slice++) {
      for (uint32_t n = 0; n < a_.step_count;) {
        const uint32_t moves = a_.step(n).run;
        move(n, moves, slice);
        __syncthreads();
        if (shared_.stopped) return;
        give_back(n, moves, slice);
        n += moves;
      }
    }
    keep_counters();
  }

 private:
  using Element = typename Type::Element;
  static constexpr int kCount = 8 / sizeof(Element), kBatch = 8;

  // Words of several steps side by side.
  __device__ __forceinline__ void move(uint32_t n, uint32_t moves, uint32_t slice) {
    const uint32_t stride = (a_.part_bytes + 7) / 8;
    for (uint32_t i = threadIdx.x; i < moves * stride; i += blockDim.x) {
      const uint32_t j = moves == 1 ? 0 : i / stride, p = i - j * stride;
      const PackedStep& step = a_.step(n + j);
      const uint64_t skipped =
          slice * a_.slice_bytes + uint64_t{blockIdx.x} * a_.part_bytes + p * 8;
      // What is left of the chunk here, within this slice and this block's part.
      uint64_t end = (slice + 1) * a_.slice_bytes;
      if (end > step.bytes) end = step.bytes;
      uint64_t left = end > skipped ? end - skipped : 0;
      if (left > a_.part_bytes - p * 8) left = a_.part_bytes - p * 8;
      // An empty message is a packet without data: others count on the order it makes.
      if (left == 0 && p > 0) continue;
      uint64_t word = 0;
      if (!take(step, p, left, slice, word) || !give(step, p, left, slice, word)) {
        shared_.stopped = true;
        return;
      }
    }
  }

  __device__ std::byte* memory(const PackedOperand& operand, uint32_t p, uint32_t slice) const {
    const uint64_t advanced = operand.kind == PackedOperand::kScratch ? 0 : slice * a_.slice_bytes;
    return operand.base + advanced + uint64_t{blockIdx.x} * a_.part_bytes + p * 8;
  }
  __device__ std::byte* packet(const PackedOperand& operand, uint32_t flag, uint32_t p) const {
    return operand.base + PackedPorts::slot_offset(a_.ports, flag) + p * sizeof(Packet);
  }
  // The operand's message is the n-th on its port in this kernel.
  static __device__ uint32_t number(const PackedOperand& operand, uint32_t slice) {
    return slice * operand.per_slice + operand.before + 1;
  }

  // The step's result for one word: a copy, or the reduction of all sources.
  __device__ __forceinline__ bool take(const PackedStep& step, uint32_t p, uint64_t left,
                                       uint32_t slice, uint64_t& word) {
    const bool scaled = a_.reduction.premultiply && step.raw_sources != 0;
    if (step.sources == 1 && !scaled) {
      PackedEnd ends[1];
      uint64_t words[1];
      look(step, 0, p, left, slice, ends[0], words[0]);
      if (ends[0].message && !wait_for_words<1>(comm_, ends, 1, a_.signature, words)) return false;
      word = words[0];
      return true;
    }
    if constexpr (std::is_same_v<Type, Bytes>) {
      return true;  // nothing else is asked of it
    } else {
      return reduce(step, p, left, slice, word);
    }
  }

  __device__ __forceinline__ void look(const PackedStep& step, int source, uint32_t p,
                                       uint64_t left, uint32_t slice, PackedEnd& end,
                                       uint64_t& word) {
    const PackedOperand& operand = a_.operand(step.first_operand + source);
    end.port = operand.port;
    end.message = operand.kind == PackedOperand::kMessage;
    if (end.message) {
      end.flag = shared_.ports.received(operand.port, number(operand, slice));
      end.at = packet(operand, end.flag, p);
    } else {
      word = left > 0 ? load_word(memory(operand, p, slice), left) : 0;
    }
  }

  __device__ __forceinline__ bool reduce(const PackedStep& step, uint32_t p, uint64_t left,
                                         uint32_t slice, uint64_t& word) {
    typename Type::Accumulator sum[kCount];
    for (int first = 0; first < step.sources; first += kBatch) {
      const int count = step.sources - first;
      PackedEnd ends[kBatch];
      uint64_t words[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; b++)
        if (b < count) look(step, first + b, p, left, slice, ends[b], words[b]);
      if (!wait_for_words<kBatch>(comm_, ends, count, a_.signature, words)) return false;
#pragma unroll
      for (int b = 0; b < kBatch; b++) {
        if (b >= count) continue;
        Element e[kCount];
        memcpy(e, &words[b], 8);
        const bool scaled =
            a_.reduction.premultiply && ((step.raw_sources >> (first + b)) & 1) != 0;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          const Element x = scaled ? scale<Type>(e[i], a_.reduction.scalar_bits) : e[i];
          sum[i] = first + b == 0 ? Type::load(x) : Op::apply(sum[i], Type::load(x));
        }
      }
    }
    Element e[kCount];
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      if (step.completes && a_.reduction.divide_by > 0)
        sum[i] = divide(sum[i], a_.reduction.divide_by);
      e[i] = Type::store(sum[i]);
    }
    memcpy(&word, e, 8);
    return true;
  }

  __device__ __forceinline__ bool give(const PackedStep& step, uint32_t p, uint64_t left,
                                       uint32_t slice, uint64_t word) {
    for (int d = 0; d < step.destinations; d++) {
      const PackedOperand& operand = a_.operand(step.first_operand + step.sources + d);
      if (operand.kind != PackedOperand::kMessage) {
        if (left > 0) store_word(memory(operand, p, slice), left, word);
        continue;
      }
      const uint32_t flag = shared_.ports.sent(operand.port, number(operand, slice));
      if (!shared_.ports.wait_for_room(comm_, operand.port, flag)) return false;
      store_packet(reinterpret_cast<Packet*>(packet(operand, flag, p)), static_cast<uint32_t>(word),
                   static_cast<uint32_t>(word >> 32), flag, flag ^ a_.signature);
    }
    return true;
  }

  // All threads have what came in: the room is the peers' again. A thread per operand of the run.
  __device__ void give_back(uint32_t n, uint32_t moves, uint32_t slice) {
    const uint32_t first = a_.step(n).first_operand;
    const PackedStep& last = a_.step(n + moves - 1);
    const uint32_t end = last.first_operand + last.sources + last.destinations;
    for (uint32_t o = first + threadIdx.x; o < end; o += blockDim.x) {
      const PackedOperand& operand = a_.operand(o);
      if (operand.kind == PackedOperand::kMessage && operand.receives)
        PackedPorts::give_back(comm_, operand.port,
                               shared_.ports.received(operand.port, number(operand, slice)));
    }
  }

  // The last message of each port says how far it has come.
  __device__ void keep_counters() {
    for (uint32_t o = threadIdx.x; o < a_.operand_count; o += blockDim.x) {
      const PackedOperand& operand = a_.operand(o);
      if (operand.kind != PackedOperand::kMessage || operand.before + 1 != operand.per_slice)
        continue;
      const uint32_t n = a_.slices * operand.per_slice;
      if (operand.receives) {
        PackedPorts::keep_received(a_.mine, a_.ports, operand.port,
                                   shared_.ports.received(operand.port, n));
      } else {
        PackedPorts::keep_sent(a_.mine, a_.ports, operand.port,
                               shared_.ports.sent(operand.port, n));
      }
    }
  }

  const PackedArguments& a_;
  const DeviceComm& comm_;
  PackedState& shared_;
};

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    packed_kernel(const __grid_constant__ PackedArguments arguments) {
  __shared__ PackedState shared;
  __shared__ alignas(16) std::byte copy[sizeof(PackedArguments)];
  auto& a = *reinterpret_cast<PackedArguments*>(copy);
  const uint32_t ports = arguments.ports;
  const uint4 counters = PackedPorts::ask(arguments.mine, ports);
  Parameters parameters;
  parameters.load(&arguments, arguments.bytes);
  parameters.store(&a);
  shared.ports.take(counters, ports);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  PackedRunner<Type, Op>(a, shared).run();
}

}  // namespace weft::cuda
