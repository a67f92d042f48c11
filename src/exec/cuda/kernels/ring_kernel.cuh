// The interpreter of interpreter.h on a GPU, with FIFOs in pinned host memory, for peers whose
// memory cannot be accessed. A thread block runs a lane, or several in turn. Its first thread runs
// the protocol. The other threads wait for data to move, and help to move it. The peer at the other
// end is a GPU or a CPU node of the same host, or a proxy that forwards to the network.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"
#include "src/exec/interpreter.h"

namespace weft::cuda {

// Copies of the port state in shared memory while a kernel runs: a read from device memory takes
// half a microsecond. Every block loads all ports of its job. It writes back the ports that its
// lane moved; no other lane moves them. Thread i handles port i. With more than kRoom ports, all
// are used in device memory.
template <typename Port, uint64_t Port::*kMoves>
struct PortCopies {
  static constexpr uint32_t kRoom = 48;
  Port* pointers[kRoom];
  Port ports[kRoom];
  uint64_t before[kRoom];

  // Returns the ports for the job to use.
  __device__ Port* const* load(Port* const* in_memory, uint32_t count) {
    if (count > kRoom) return in_memory;
    if (threadIdx.x < count) {
      ports[threadIdx.x] = *in_memory[threadIdx.x];
      before[threadIdx.x] = ports[threadIdx.x].*kMoves;
      pointers[threadIdx.x] = &ports[threadIdx.x];
    }
    return pointers;
  }
  __device__ void store(Port* const* in_memory, uint32_t count) const {
    if (count > kRoom || threadIdx.x >= count) return;
    if (ports[threadIdx.x].*kMoves != before[threadIdx.x])
      *in_memory[threadIdx.x] = ports[threadIdx.x];
  }
};

// Shared by the threads of a block.
struct RingState {
  Movement movement;
  Operation operation;
  PortCopies<SendPort, &SendPort::tail> sends;
  PortCopies<RecvPort, &RecvPort::head> receives;
  bool finished;
  bool stopped;  // all threads must stop
};

// The interpreter's Target on a GPU. The block's first thread uses it.
template <typename Type, typename Op>
struct RingTarget {
  static constexpr int kMostOperands = kMaxRanks;
  static constexpr bool kDecodes = false;
  static constexpr bool kIrregular = false;
  RingState& shared;

  __device__ static uint64_t load(const uint64_t* at) { return load_acquire_system(at); }
  __device__ static void store(uint64_t* at, uint64_t value) { store_release_system(at, value); }
  __device__ static uint64_t load_progress(const uint64_t* at) { return load_acquire_gpu(at); }
  __device__ static void store_progress(uint64_t* at, uint64_t v) { store_release_gpu(at, v); }
  // All threads have met since they used their data, and the header has been used too. So the reads
  // are complete. A fence would only wait for earlier writes.
  __device__ static void store_head(uint64_t* at, uint64_t v) { store_relaxed_system(at, v); }
  __device__ static void store_tail(uint64_t* at, uint64_t v) { store_relaxed_system(at, v); }
  // One fence for all messages of a step: it takes a round trip to host memory.
  __device__ static void finish_writes() { fence_system(); }
  // Loads the whole header at once: every read from host memory takes a microsecond.
  __device__ static MessageHeader header(const MessageHeader* at) {
    MessageHeader header;
    constexpr size_t kVectors = sizeof header / sizeof(uint4);
    uint4 words[kVectors];
    for (size_t i = 0; i < kVectors; i++)
      words[i] = load_vector(reinterpret_cast<const uint4*>(at) + i);
    memcpy(&header, words, sizeof header);
    return header;
  }
  // The other end polls.
  __device__ static void ring(const Bell&) {}
  __device__ static const std::byte* map(const RecvPort&, uint64_t) { return nullptr; }

  __device__ void combine(const Reduction& reduction, const std::byte* const* sources,
                          uint32_t source_count, uint64_t raw_sources, bool completes,
                          std::byte* const* destinations, uint32_t destination_count,
                          uint64_t elements) {
    Movement& m = shared.movement;
    for (uint32_t i = 0; i < source_count; i++) {
      m.sources[i] = sources[i];
      m.scalars[i] = reduction.scalar_bits;
    }
    for (uint32_t i = 0; i < destination_count; i++) m.destinations[i] = destinations[i];
    m.aligned = false;  // not known
    m.source_count = source_count;
    m.destination_count = destination_count;
    m.scaled = reduction.premultiply ? raw_sources : 0;
    m.divide_by = completes ? reduction.divide_by : 0;
    if constexpr (kToldLater<Op>) m.op = reduction.op;
    m.elements = std::is_same_v<Type, Bytes> ? elements * shared.operation.element : elements;
    if (source_count == 1 && destination_count == 1 && m.scaled == 0 &&
        sources[0] == destinations[0])
      return;
    meet_block();
    cuda::combine<Type, Op, true>(m, whole_block());
    meet_block();
  }
};

template <typename Type, typename Op>
__device__ void follow(RingState& shared) {
  for (;;) {
    meet_block();
    if (shared.finished) return;
    cuda::combine<Type, Op, true>(shared.movement, whole_block());
    meet_block();
  }
}

// False: all threads must stop.
template <typename Type, typename Op>
__device__ bool lead(const RingArguments& a, RingState& shared, uint32_t number) {
  RingTarget<Type, Op> target{shared};
  Interpreter<RingTarget<Type, Op>> interpreter(shared.operation, target);
  LaneState lane;
  lane.lane = number;
  Patience patience;
  for (;;) {
    const Advance outcome = interpreter.advance(lane);
    if (outcome == Advance::kDone) return true;
    if (outcome == Advance::kFailed) {
      report(a.comm, KernelError::kOtherCall, lane.waits_for, static_cast<int>(lane.step));
      return false;
    }
    if (outcome == Advance::kAgain) {
      patience.start_again();
    } else if (!patience.lasts(a.comm, lane.waits_for, static_cast<int>(lane.step))) {
      return false;
    }
  }
}

template <typename Type, typename Op>
__device__ void run_ring_job(RingArguments& a, RingState& shared, const RingJob& job) {
  auto* ports = a.at<void*>(a.ports_at);
  auto* sends = reinterpret_cast<SendPort* const*>(ports + job.first_send);
  auto* receives = reinterpret_cast<RecvPort* const*>(ports + job.first_receive);
  SendPort* const* own_sends = shared.sends.load(sends, job.sends);
  RecvPort* const* own_receives = shared.receives.load(receives, job.receives);
  __syncthreads();
  if (threadIdx.x == 0) {
    Operation& op = shared.operation;
    op = Operation{};
    op.program = {a.at<ProgramLane>(a.lanes_at),
                  a.at<ProgramStep>(a.steps_at),
                  a.at<ProgramOperand>(a.operands_at),
                  a.at<ProgramDependency>(a.dependencies_at),
                  a.lane_count,
                  a.chunks};
    op.input = job.input;
    op.output = job.output;
    op.scratch = a.scratch;
    op.count = job.count;
    op.stride = job.stride;
    op.chunk = job.chunk;
    op.slice = job.slice;
    op.iterations = job.iterations;
    op.element = a.element;
    op.reduction = a.reduction;
    op.collective = a.collective;
    op.root = a.root;
    op.plan = a.plan;
    op.sends = own_sends;
    op.receives = own_receives;
    op.progress = a.progress;
    op.share_from = kShareFrom;
    op.share_below = kShareBelow;
    shared.finished = false;
    shared.stopped = !lead<Type, Op>(a, shared, job.lane);
    shared.finished = true;
    meet_block();
    // Lanes count from zero in every kernel. The last block to finish resets the counters.
    if (a.progress != nullptr) {
      __threadfence();
      if (atomicInc(a.leaving, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence();
        for (uint32_t lane = 0; lane < gridDim.x; lane++) a.progress[lane] = 0;
      }
    }
  } else {
    follow<Type, Op>(shared);
  }
  if (job.next == 0) let_successor_start();
  shared.sends.store(sends, job.sends);
  shared.receives.store(receives, job.receives);
}

// Runs a block's jobs. The arguments are in shared memory.
template <typename Type, typename Op>
__device__ __noinline__ void run_ring_jobs(RingArguments& a) {
  __shared__ RingState shared;
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  for (uint32_t number = blockIdx.x;;) {
    const RingJob& job = a.at<RingJob>(a.jobs_at)[number];
    run_ring_job<Type, Op>(a, shared, job);
    number = job.next;
    if (number == 0) return;
    __syncthreads();  // the ports are used again
    if (shared.stopped) return;
  }
}

template <typename Type, typename Op, size_t kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    ring_kernel(const __grid_constant__ ParameterBytes<kBytes> arguments) {
  __shared__ ParameterBytes<kBytes> copy;
  const uint32_t bytes = reinterpret_cast<const RingArguments&>(arguments).bytes;
  if (bytes == 0) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, bytes);
  parameters.store(&copy);
  __syncthreads();
  wait_for_predecessor();
  run_ring_jobs<Type, Op>(reinterpret_cast<RingArguments&>(copy));
}

}  // namespace weft::cuda
