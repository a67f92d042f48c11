// The interpreter of programs with FIFOs, with the low-latency protocol: every thread block runs
// all steps on its own part of every chunk, and talks only to the same block of its peers.
#pragma once

#include "src/exec/cuda/combine.cuh"
#include "src/exec/cuda/geometry.cuh"
#include "src/exec/cuda/packed.cuh"

namespace weft::cuda {

// Shared by the threads of a block while it runs a program.
struct PackedState {
  PackedPorts ports;
  bool stopped;
  // Where the operands of two runs of steps are, used in turn.
  PackedEnd ends[2][kMaxOperands];
  uint64_t bytes[2][kMaxSteps];
};

template <typename Type, typename Op>
class PackedRunner {
 public:
  __device__ PackedRunner(const KernelArguments& a, PackedState& shared)
      : a_(a), comm_(a.comm), shared_(shared) {}

  __device__ void run() {
    const StepRange& range = a_.program;
    uint32_t turn = 0;
    for (uint64_t slice = 0; slice < range.slices; slice++) {
      for (uint32_t n = range.first; n < range.first + range.count; n += a_.step(n).run) {
        const uint32_t moves = a_.step(n).run;
        const int32_t chunks = a_.step(n).count > 1 ? a_.step(n).count : 1;
        for (int32_t c = 0; c < chunks; c++) {
          if (c > 0) __syncthreads();
          find_ends(range, n, moves, c, slice, turn);
          __syncthreads();
          move_packed(range, n, moves, turn);
        }
        __syncthreads();
        if (shared_.stopped) return;
        give_back(n, moves, turn);
        turn ^= 1;
      }
    }
    shared_.ports.store(a_.mine, a_.ports);
  }

 private:
  using Element = typename Type::Element;

  // Calls visit(step, operand) for what this thread looks after: an operand of a single step, or
  // all operands of one of several steps.
  template <typename Visit>
  __device__ void for_mine(uint32_t n, uint32_t moves, Visit visit) {
    const auto operands = [&](uint32_t i) { return a_.step(i).sources + a_.step(i).destinations; };
    if (moves == 1) {
      if (threadIdx.x < operands(n)) visit(0u, threadIdx.x);
    } else if (threadIdx.x < moves) {
      for (uint32_t i = 0; i < operands(n + threadIdx.x); i++) visit(threadIdx.x, i);
    }
  }

  __device__ void find_ends(const StepRange& range, uint32_t n, uint32_t moves, int32_t c,
                            uint64_t slice, uint32_t turn) {
    if (threadIdx.x < moves)
      shared_.bytes[turn][threadIdx.x] =
          a_.step(n + threadIdx.x).count == 0
              ? 0
              : length(a_, range, a_.step(n + threadIdx.x), c, slice) * a_.element;
    const uint32_t first = a_.step(n).first_operand;
    for_mine(n, moves, [&](uint32_t j, uint32_t i) {
      const ProgramStep& step = a_.step(n + j);
      const ProgramOperand& operand = a_.operand(step.first_operand + i);
      PackedEnd& end = shared_.ends[turn][step.first_operand - first + i];
      if (operand.buffer != ProgramBuffer::kPeer) {
        end = {address(a_, range, operand, c, slice, a_.input, a_.output), 0, 0, false, false};
      } else if (c > 0) {
        end.at += words(range) * sizeof(Packet);  // the next chunk of the same message
      } else if (i < step.sources) {
        end = shared_.ports.next_receive(comm_, operand.index, operand.owner);
      } else {
        end = shared_.ports.next_send(comm_, operand.index, operand.owner);
      }
    });
  }

  __device__ void give_back(uint32_t n, uint32_t moves, uint32_t turn) {
    const uint32_t first = a_.step(n).first_operand;
    for_mine(n, moves, [&](uint32_t j, uint32_t i) {
      const ProgramStep& step = a_.step(n + j);
      const PackedEnd& end = shared_.ends[turn][step.first_operand - first + i];
      if (i < step.sources && end.message) shared_.ports.give_back(comm_, end);
    });
  }

  // Words of a block's part of a chunk.
  __device__ uint32_t words(const StepRange& range) const {
    return static_cast<uint32_t>((range.part * a_.element + 7) / 8);
  }

  __device__ void move_packed(const StepRange& range, uint32_t n, uint32_t moves, uint32_t turn) {
    const uint32_t stride = words(range), first = a_.step(n).first_operand;
    for (uint32_t i = threadIdx.x; i < moves * stride; i += blockDim.x) {
      const uint32_t j = moves == 1 ? 0 : i / stride, p = i - j * stride;
      const uint64_t bytes = shared_.bytes[turn][j];
      // An empty message is a packet without data: others count on the order it makes.
      if (p * uint64_t{8} >= bytes && (p > 0 || bytes > 0)) continue;
      const ProgramStep& step = a_.step(n + j);
      const PackedEnd* sources = shared_.ends[turn] + (step.first_operand - first);
      const uint64_t left = bytes - p * uint64_t{8};
      uint64_t word = 0;
      const bool scaled = a_.reduction.premultiply && step.raw_sources != 0;
      const bool there = step.sources == 1 && !scaled ? take(sources, p, left, word)
                                                      : reduce(step, sources, p, left, word);
      if (!there || !store_words(comm_, shared_.ports, sources + step.sources, step.destinations, p,
                                 left, a_.signature, word)) {
        shared_.stopped = true;
        return;
      }
    }
  }

  __device__ bool take(const PackedEnd* sources, uint32_t p, uint64_t left, uint64_t& word) {
    uint64_t words[1];
    if (!load_words<1>(comm_, sources, 1, p, left, a_.signature, words)) return false;
    word = words[0];
    return true;
  }

  __device__ bool reduce(const ProgramStep& step, const PackedEnd* sources, uint32_t p,
                         uint64_t left, uint64_t& word) {
    constexpr int kCount = 8 / sizeof(Element), kBatch = 8;
    typename Type::Accumulator sum[kCount];
    for (int first = 0; first < step.sources; first += kBatch) {
      uint64_t words[kBatch];
      if (!load_words<kBatch>(comm_, sources + first, step.sources - first, p, left, a_.signature,
                              words))
        return false;
#pragma unroll
      for (int b = 0; b < kBatch; b++) {
        if (first + b >= step.sources) continue;
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

  const KernelArguments& a_;
  const DeviceComm& comm_;
  PackedState& shared_;
};

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    packed_kernel(const __grid_constant__ KernelArguments arguments) {
  __shared__ PackedState shared;
  __shared__ alignas(16) std::byte copy[sizeof(KernelArguments)];
  auto& a = *reinterpret_cast<KernelArguments*>(copy);
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
