// The interpreter on the GPU: one thread block per instance of the program's lane. Every instance
// runs all steps on its own part of every chunk and meets only the same instance of its peers.
#pragma once

#include "src/exec/cuda/combine.cuh"

namespace weft::cuda {

// Shared by the threads of a block while it runs a program.
struct BlockState {
  Movement movement;
  const std::byte* inputs[kMaxRanks];  // as the peers announced them
  std::byte* outputs[kMaxRanks];
  uint64_t scalars[kMaxRanks];
  bool stopped;
};

// A block's own counters, as its last kernel left them.
struct Counters {
  uint32_t met, left, packed;
};

template <typename Type, typename Op>
class ProgramRunner {
 public:
  __device__ ProgramRunner(const KernelArguments& a, Mailbox& mine, const Counters& counters,
                           BlockState& shared)
      : a_(a),
        comm_(a.comm),
        mine_(mine),
        shared_(shared),
        met_(counters.met),
        left_(counters.left),
        packed_(counters.packed) {}

  __device__ void run() {
    if constexpr (!std::is_same_v<Type, Bytes>) {
      if (a_.packed) return run_packed();
    }
    uint32_t meetings = 0;
    for (uint32_t n = 0; n < a_.step_count; n++) {
      const ProgramStep& step = a_.steps[n];
      if (step.count == 0) {
        // The first tokens of a call announce its buffers; later ones only order memory. A thread
        // sends to a peer and waits for it without minding the others; all meet before data is
        // touched.
        if (step.destinations > 0) {
          meetings == 0 ? announce(step) : leave(step);
          meetings++;
          continue;
        }
        meetings == 1 ? hear(step) : wait_for_others(step);
      } else if (const uint32_t moves = simple_moves(n); moves > 1) {
        move_side_by_side(n, moves);
        n += moves - 1;
      } else {
        for (int32_t c = 0; c < step.count; c++) move(step, c);
      }
      __syncthreads();
      if (shared_.stopped) return;
    }
    if (threadIdx.x == 0 && meetings > 0) {
      mine_.met[blockIdx.x] = met_ + 1;
      mine_.left[blockIdx.x] = left_ + meetings - 1;
    }
  }

 private:
  __device__ const ProgramOperand* operands(const ProgramStep& step) const {
    return a_.operands + step.first_operand;
  }

  __device__ void fail(uint32_t error, int peer, uint32_t expected, uint32_t seen) {
    shared_.stopped = true;
    if (atomicCAS_system(&comm_.flags->error, 0u, error) == 0u) {
      comm_.flags->peer = peer;
      comm_.flags->expected = expected;
      comm_.flags->seen = seen;
    }
    comm_.flags->stop = 1;
  }

  // Thread i deals with peer i of the step.
  __device__ void announce(const ProgramStep& step) {
    if (threadIdx.x >= step.destinations) return;
    const int peer = a_.operands[step.first_operand + threadIdx.x].index;
    Announcement& to = comm_.mailboxes[peer]->announcements[blockIdx.x][comm_.rank];
    const uint32_t flag = met_ + 1;
    const uint64_t base = comm_.bases[comm_.rank];
    const uint64_t input = reinterpret_cast<uint64_t>(a_.input) - base,
                   output = reinterpret_cast<uint64_t>(a_.output) - base;
    store_packet(&to.input, static_cast<uint32_t>(input), static_cast<uint32_t>(input >> 32), flag);
    store_packet(&to.output, static_cast<uint32_t>(output), static_cast<uint32_t>(output >> 32),
                 flag);
    store_packet(&to.scalar, static_cast<uint32_t>(a_.reduction.scalar_bits),
                 static_cast<uint32_t>(a_.reduction.scalar_bits >> 32), flag);
    store_packet(&to.signature, a_.signature, 0, flag);
  }

  __device__ void hear(const ProgramStep& step) {
    if (threadIdx.x == 0) {
      shared_.inputs[comm_.rank] = a_.input;
      shared_.outputs[comm_.rank] = a_.output;
      shared_.scalars[comm_.rank] = a_.reduction.scalar_bits;
    }
    if (threadIdx.x >= step.sources) return;
    const int peer = a_.operands[step.first_operand + threadIdx.x].index;
    const Announcement& from = mine_.announcements[blockIdx.x][peer];
    const uint32_t flag = met_ + 1;
    Packet input, output, scalar, signature;
    const auto fresh = [&](const Packet& p) { return p.flag0 == flag && p.flag1 == flag; };
    const bool heard = wait_until(comm_, [&] {
      input = load_packet(&from.input);
      output = load_packet(&from.output);
      scalar = load_packet(&from.scalar);
      signature = load_packet(&from.signature);
      return fresh(input) && fresh(output) && fresh(scalar) && fresh(signature);
    });
    if (!heard) {
      shared_.stopped = true;
      return;
    }
    if (signature.data0 != a_.signature) fail(1, peer, a_.signature, signature.data0);
    const auto join = [](const Packet& p) {
      return static_cast<uint64_t>(p.data1) << 32 | p.data0;
    };
    shared_.inputs[peer] = reinterpret_cast<const std::byte*>(comm_.bases[peer] + join(input));
    shared_.outputs[peer] = reinterpret_cast<std::byte*>(comm_.bases[peer] + join(output));
    shared_.scalars[peer] = join(scalar);
  }

  // Everything this block wrote is visible to whoever sees the token.
  __device__ void leave(const ProgramStep& step) {
    if (threadIdx.x >= step.destinations) return;
    const int peer = a_.operands[step.first_operand + threadIdx.x].index;
    store_release(&comm_.mailboxes[peer]->tokens[blockIdx.x][comm_.rank], left_ + 1,
                  comm_.one_device);
  }

  __device__ void wait_for_others(const ProgramStep& step) {
    if (threadIdx.x >= step.sources) return;
    const int peer = a_.operands[step.first_operand + threadIdx.x].index;
    const uint32_t* token = &mine_.tokens[blockIdx.x][peer];
    const uint32_t goal = left_ + 1;
    if (!wait_until(comm_, [&] {
          return static_cast<int32_t>(load_acquire(token, comm_.one_device) - goal) >= 0;
        }))
      shared_.stopped = true;
  }

  // How many steps from the n-th on just copy one chunk to one place.
  __device__ uint32_t simple_moves(uint32_t n) const {
    uint32_t moves = 0;
    while (n + moves < a_.step_count) {
      const ProgramStep& step = a_.steps[n + moves];
      if ((moves > 0 && !step.joins) || step.count != 1 || step.sources != 1 ||
          step.destinations != 1 || a_.reduction.premultiply)
        break;
      moves++;
    }
    return moves;
  }

  // Copies that lower() found independent: the threads share them out.
  __device__ void move_side_by_side(uint32_t n, uint32_t moves) {
    uint32_t groups = 1;
    while (groups < moves && groups < blockDim.x / 32) groups *= 2;
    const uint32_t threads = blockDim.x / groups, group = threadIdx.x / threads,
                   t = threadIdx.x % threads;
    for (uint32_t i = group; i < moves; i += groups) {
      const ProgramStep& step = a_.steps[n + i];
      const uint64_t elements = length(step, 0);
      if (elements == 0) continue;
      const ProgramOperand* from = operands(step);
      const std::byte* source = address(from[0], 0);
      std::byte* destination = address(from[1], 0);
      if (source != destination)
        copy<8>(source, &destination, 1, elements * a_.element,
                {t, threads, blockIdx.x, gridDim.x});
    }
  }

  // Elements of chunk c of a step.
  __device__ uint64_t length(const ProgramStep& step, int32_t c) const {
    const uint64_t from = static_cast<uint64_t>((step.sub + c) % a_.chunks) * a_.chunk;
    if (from >= a_.count) return 0;
    return a_.count - from < a_.chunk ? a_.count - from : a_.chunk;
  }

  __device__ std::byte* address(const ProgramOperand& operand, int32_t c) const {
    const auto index = static_cast<uint32_t>(operand.index + c),
               chunks = static_cast<uint32_t>(a_.chunks);
    const int owner = operand.owner >= 0 ? operand.owner : comm_.rank;
    uint64_t chunk = index * a_.chunk;
    if (operand.buffer != ProgramBuffer::kScratch)
      chunk =
          chunks == 1 ? index * a_.count : index / chunks * a_.count + index % chunks * a_.chunk;
    std::byte* base = nullptr;
    if (operand.buffer == ProgramBuffer::kScratch) {
      base = a_.scratch;
    } else if (operand.owner < 0) {
      base = operand.buffer == ProgramBuffer::kInput ? const_cast<std::byte*>(a_.input) : a_.output;
    } else {
      base = operand.buffer == ProgramBuffer::kInput ? const_cast<std::byte*>(shared_.inputs[owner])
                                                     : shared_.outputs[owner];
    }
    return base + chunk * a_.element;
  }

  __device__ void move(const ProgramStep& step, int32_t c) {
    const uint64_t elements = length(step, c);
    Movement& m = shared_.movement;
    const ProgramOperand* from = operands(step);
    if (threadIdx.x < step.sources) {
      const ProgramOperand& operand = from[threadIdx.x];
      m.sources[threadIdx.x] = address(operand, c);
      m.scalars[threadIdx.x] =
          operand.owner >= 0 ? shared_.scalars[operand.owner] : a_.reduction.scalar_bits;
    }
    if (threadIdx.x < step.destinations)
      m.destinations[threadIdx.x] = address(from[step.sources + threadIdx.x], c);
    if (threadIdx.x == 0) {
      m.source_count = step.sources;
      m.destination_count = step.destinations;
      m.scaled = a_.reduction.premultiply ? step.raw_sources : 0;
      m.divide_by = step.completes ? a_.reduction.divide_by : 0;
      m.elements = std::is_same_v<Type, Bytes> ? elements * a_.element : elements;
    }
    __syncthreads();
    const bool nothing = elements == 0 || (m.source_count == 1 && m.destination_count == 1 &&
                                           m.scaled == 0 && m.sources[0] == m.destinations[0]);
    if (!nothing) combine<Type, Op>(m);
    if (step.count > 1) __syncthreads();  // the movement is filled in anew
  }

  // The one-shot program with the low-latency protocol: every 8 bytes go to all peers with flags
  // beside them, and a thread reduces the peers' packets of the same place as soon as they are
  // there. No meeting is needed at either end.
  __device__ void run_packed() {
    using Element = typename Type::Element;
    constexpr int kCount = 8 / sizeof(Element);
    const uint32_t epoch = packed_ + 1;
    const uint64_t bytes = a_.count * sizeof(Element), packets = (bytes + 7) / 8;
    const uint64_t share = (packets + gridDim.x - 1) / gridDim.x;
    const uint64_t begin = share * blockIdx.x,
                   end = begin + share < packets ? begin + share : packets;
    const int rank = comm_.rank, nranks = comm_.nranks;
    for (uint64_t p = begin + threadIdx.x; p < end; p += blockDim.x) {
      const uint64_t mine = read8(p, bytes);
      for (int k = 1; k < nranks; k++) {
        const int peer = rank + k < nranks ? rank + k : rank + k - nranks;
        auto* to = reinterpret_cast<Packet*>(comm_.mailboxes[peer]->packets[rank][epoch & 1]) + p;
        store_packet(to, static_cast<uint32_t>(mine), static_cast<uint32_t>(mine >> 32), epoch);
      }
    }
    constexpr int kBatch = 8;  // packets asked for at once
    for (uint64_t p = begin + threadIdx.x; p < end; p += blockDim.x) {
      typename Type::Accumulator sum[kCount];
      for (int first = 0; first < nranks; first += kBatch) {
        Packet packets[kBatch];
        const bool there = wait_until(comm_, [&] {
          bool all = true;
#pragma unroll
          for (int b = 0; b < kBatch; b++) {
            const int q = first + b;
            if (q < nranks && q != rank)
              packets[b] =
                  load_packet(reinterpret_cast<const Packet*>(mine_.packets[q][epoch & 1]) + p);
          }
#pragma unroll
          for (int b = 0; b < kBatch; b++) {
            const int q = first + b;
            if (q < nranks && q != rank)
              all = all && packets[b].flag0 == epoch && packets[b].flag1 == epoch;
          }
          return all;
        });
        if (!there) break;
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          const int q = first + b;
          if (q >= nranks) continue;
          const uint64_t data =
              q == rank ? read8(p, bytes)
                        : static_cast<uint64_t>(packets[b].data1) << 32 | packets[b].data0;
          Element e[kCount];
          memcpy(e, &data, 8);
#pragma unroll
          for (int i = 0; i < kCount; i++)
            sum[i] = q == 0 ? Type::load(e[i]) : Op::apply(sum[i], Type::load(e[i]));
        }
      }
      Element e[kCount];
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        if (a_.reduction.divide_by > 0) sum[i] = divide(sum[i], a_.reduction.divide_by);
        e[i] = Type::store(sum[i]);
      }
      write8(p, bytes, e);
    }
    __syncthreads();
    if (threadIdx.x == 0) mine_.packed[blockIdx.x] = epoch;
  }

  // Eight bytes of the input as they are to be sent: already multiplied, if the operator says so.
  __device__ uint64_t read8(uint64_t p, uint64_t bytes) const {
    using Element = typename Type::Element;
    constexpr int kCount = 8 / sizeof(Element);
    Element e[kCount];
    const std::byte* at = a_.input + p * 8;
    if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && p * 8 + 8 <= bytes) {
      const uint64_t v = *reinterpret_cast<const volatile uint64_t*>(at);
      memcpy(e, &v, 8);
    } else {
      for (int i = 0; i < kCount; i++)
        e[i] = p * 8 + i * sizeof(Element) < bytes
                   ? reinterpret_cast<const volatile Element*>(at)[i]
                   : Element{};
    }
    if (a_.reduction.premultiply)
      for (int i = 0; i < kCount; i++) e[i] = scale<Type>(e[i], a_.reduction.scalar_bits);
    uint64_t v;
    memcpy(&v, e, 8);
    return v;
  }

  template <typename Element, int Count>
  __device__ void write8(uint64_t p, uint64_t bytes, const Element (&e)[Count]) {
    std::byte* at = a_.output + p * 8;
    if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && p * 8 + 8 <= bytes) {
      uint64_t v;
      memcpy(&v, e, 8);
      *reinterpret_cast<volatile uint64_t*>(at) = v;
      return;
    }
    for (int i = 0; i < Count; i++)
      if (p * 8 + i * sizeof(Element) < bytes) reinterpret_cast<volatile Element*>(at)[i] = e[i];
  }

  const KernelArguments& a_;
  const DeviceComm& comm_;
  Mailbox& mine_;
  BlockState& shared_;
  const uint32_t met_, left_, packed_;  // this block's counters when the kernel began
};

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    program_kernel(const __grid_constant__ KernelArguments arguments) {
  __shared__ BlockState shared;
  __shared__ alignas(16) std::byte copy[sizeof(KernelArguments)];
  auto& a = *reinterpret_cast<KernelArguments*>(copy);
  const Counters counters{load_volatile(&arguments.mine->met[blockIdx.x]),
                          load_volatile(&arguments.mine->left[blockIdx.x]),
                          load_volatile(&arguments.mine->packed[blockIdx.x])};
  fetch_parameters(arguments, a);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  ProgramRunner<Type, Op>(a, *arguments.mine, counters, shared).run();
}

}  // namespace weft::cuda
