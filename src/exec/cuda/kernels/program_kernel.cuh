// The interpreter of programs that read and write peers' memory. Every thread block runs all steps
// on its own part of every chunk, or on tiles that it draws, see all_blocks(). It meets only the
// same block of its peers. A program that is a OneMovement is not interpreted.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/geometry.cuh"

namespace weft::cuda {

// Shared by the threads of a block while it runs a program.
struct BlockState {
  Movement movement;
  const std::byte* inputs[kMaxRanks];  // as the peers announced them
  std::byte* outputs[kMaxRanks];
  uint64_t scalars[kMaxRanks];
  bool stopped, fall_back;
};

template <typename Type, typename Op>
class ProgramRunner {
 public:
  __device__ ProgramRunner(const KernelArguments& a, uint32_t announced, uint32_t met,
                           BlockState& shared)
      : a_(a), comm_(a.comm), mine_(*a.mine), shared_(shared), announced_(announced), met_(met) {}

  __device__ void run() {
    announce();
    hear();
    __syncthreads();
    if (shared_.stopped) return;
    if (threadIdx.x == 0) mine_.announced[blockIdx.x] = announced_ + 1;
    const bool falls_back = a_.has_fallback && shared_.fall_back;
    if (a_.one_movement.destinations != 0 && !falls_back) {
      if (moves(shared_.movement)) combine<Type, Op>(shared_.movement, all_blocks(a_.program));
      __syncthreads();
      meet();
    } else {
      run_steps(falls_back ? a_.fallback : a_.program);
    }
    if (threadIdx.x == 0) mine_.met[blockIdx.x] = met_;
  }

 private:
  __device__ std::byte* find(const StepRange& range, const ProgramOperand& operand, int32_t c,
                             uint64_t slice) const {
    if (operand.owner < 0) return address(a_, range, operand, c, slice, a_.input, a_.output);
    return address(a_, range, operand, c, slice, shared_.inputs[operand.owner],
                   shared_.outputs[operand.owner]);
  }

  // All ranks meet at the start. Thread i tells rank i where this rank's buffers are.
  __device__ void announce() {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer >= comm_.nranks || peer == comm_.rank) return;
    Announcement& to = comm_.mailboxes[peer]->announcements[blockIdx.x][comm_.rank];
    const uint32_t flag = announced_ + 1;
    store_packet(&to.input, a_.input_place, flag);
    store_packet(&to.output, a_.output_place, flag);
    store_packet(&to.scalar, a_.reduction.scalar_bits, flag);
    store_packet(&to.signature, a_.signature, flag);
  }

  static __device__ bool is_aligned(const std::byte* at) {
    return reinterpret_cast<uintptr_t>(at) % 16 == 0;
  }

  // Records a rank's buffers for the program. Thread i has rank i.
  __device__ void note(int rank, const std::byte* input, std::byte* output, uint64_t scalar) {
    shared_.inputs[rank] = input;
    shared_.outputs[rank] = output;
    shared_.scalars[rank] = scalar;
    const OneMovement& one = a_.one_movement;
    Movement& m = shared_.movement;
    const uint32_t bit = 1u << rank;
    if ((one.sources & bit) != 0) {
      const int i = __popc(one.sources & (bit - 1));
      m.sources[i] = input + one.source_at;
      m.scalars[i] = scalar;
      if (!is_aligned(m.sources[i])) m.aligned = false;
    }
    if ((one.destinations & bit) != 0) {
      const int i = __popc(one.destinations & (bit - 1));
      m.destinations[i] = output + one.destination_at;
      if (!is_aligned(m.destinations[i])) m.aligned = false;
    }
  }

  __device__ void hear() {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer == comm_.nranks) {  // this thread waits for no peer
      Movement& m = shared_.movement;
      m.source_count = __popc(a_.one_movement.sources);
      m.destination_count = __popc(a_.one_movement.destinations);
      m.scaled = a_.one_movement.scaled;
      m.divide_by = a_.one_movement.divide_by;
      m.elements = a_.one_movement.elements * (std::is_same_v<Type, Bytes> ? a_.element : 1);
    }
    if (peer >= comm_.nranks) return;
    if (peer == comm_.rank) {
      note(peer, a_.input, a_.output, a_.reduction.scalar_bits);
      if (a_.input_place == kPrivate || a_.output_place == kPrivate) shared_.fall_back = true;
      return;
    }
    const Announcement& from = mine_.announcements[blockIdx.x][peer];
    const uint32_t flag = announced_ + 1;
    Packet input, output, scalar, signature;
    const auto fresh = [&](const Packet& p) { return p.flag0 == flag && p.flag1 == flag; };
    const bool heard = wait_until(comm_, peer, [&] {
      input = load_packet(&from.input);
      output = load_packet(&from.output);
      scalar = load_packet(&from.scalar);
      signature = load_packet(&from.signature);
      // The block's reads of the peer's buffers come after this load. Otherwise the SM's L1 cache
      // may hold old data from another rank's kernel. It is loaded with the others, in one trip.
      const uint32_t last = load_acquire(&from.signature.flag1, comm_.one_device);
      return fresh(input) && fresh(output) && fresh(scalar) && fresh(signature) && last == flag;
    });
    if (!heard) {
      shared_.stopped = true;
      return;
    }
    if (signature.data0 != a_.signature) {
      shared_.stopped = true;
      report(comm_, KernelError::kOtherCall, peer);
      return;
    }
    const auto join = [](const Packet& p) {
      return static_cast<uint64_t>(p.data1) << 32 | p.data0;
    };
    if (join(input) == kPrivate || join(output) == kPrivate) shared_.fall_back = true;
    note(peer, locate(peer, join(input)), locate(peer, join(output)), join(scalar));
  }

  __device__ std::byte* locate(int peer, uint64_t place) const {
    if (comm_.one_process) return reinterpret_cast<std::byte*>(place);
    if (place == kPrivate || place == 0) return nullptr;
    const uint64_t registration = (place >> kOffsetBits) - 1;
    const uint64_t* mapped = comm_.registrations + peer * kPlaces + registration;
    return reinterpret_cast<std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                        (place & ((uint64_t{1} << kOffsetBits) - 1)));
  }

  __device__ void run_steps(const StepRange& range) {
    for (uint64_t slice = 0; slice < range.slices; slice++) {
      for (uint32_t n = range.first; n < range.first + range.count;) {
        const ProgramStep& step = a_.step(n);
        if (step.count == 0) {
          // A thread sends to one peer and waits for it, independently of the other threads. All
          // threads meet before they touch data.
          if (step.destinations > 0) leave(step);
          if (moved_ > 0) finish_drawing();
          if (step.sources > 0) {
            wait_for_others(step);
            met_++;
          }
          n++;
          if (step.destinations > 0) continue;  // a wait follows
        } else {
          n += run_step(range, n, slice);
        }
        __syncthreads();
        if (shared_.stopped) return;
      }
    }
  }

  // Performs one step, or several that are independent. Returns their number.
  __device__ uint32_t run_step(const StepRange& range, uint32_t n, uint64_t slice) {
    const ProgramStep& step = a_.step(n);
    if (step.run > 1 && simple(n, step.run)) {
      if (range.protocol == Protocol::kPeerMemory) {
        move_side_by_side(range, n, step.run, slice);
      } else {
        move_tiles(range, n, step.run, slice);
      }
      return step.run;
    }
    for (int32_t c = 0; c < step.count; c++) move(range, step, c, slice);
    return 1;
  }

  // Every rank meets every other.
  __device__ void meet() {
    const int peer = static_cast<int>(threadIdx.x);
    const bool is_peer = peer < comm_.nranks && peer != comm_.rank;
    if (is_peer) leave(peer);
    if (moved_ > 0) finish_drawing();
    if (is_peer) wait_for(peer);
    met_++;
    __syncthreads();
  }

  // A peer that sees the token also sees everything this block wrote.
  __device__ void leave(int peer) {
    store_release(&comm_.mailboxes[peer]->tokens[blockIdx.x][comm_.rank], met_ + 1,
                  comm_.one_device);
  }
  __device__ void leave(const ProgramStep& step) {
    if (threadIdx.x < step.destinations) leave(a_.operand(step.first_operand + threadIdx.x).index);
  }

  __device__ void wait_for_others(const ProgramStep& step) {
    if (threadIdx.x < step.sources) wait_for(a_.operand(step.first_operand + threadIdx.x).index);
  }
  __device__ void wait_for(int peer) {
    const uint32_t* token = &mine_.tokens[blockIdx.x][peer];
    const uint32_t goal = met_ + 1;
    if (!wait_until(comm_, peer, [&] {
          return static_cast<int32_t>(load_acquire(token, comm_.one_device) - goal) >= 0;
        }))
      shared_.stopped = true;
  }

  // Whether each step copies one chunk to one place.
  __device__ bool simple(uint32_t n, uint32_t steps) const {
    if (a_.reduction.premultiply) return false;
    for (uint32_t i = n; i < n + steps; i++)
      if (a_.step(i).count != 1 || a_.step(i).sources != 1 || a_.step(i).destinations != 1)
        return false;
    return true;
  }

  // Copies that lower() found independent. The threads divide them among themselves.
  __device__ void move_side_by_side(const StepRange& range, uint32_t n, uint32_t moves,
                                    uint64_t slice) {
    uint32_t groups = 1;
    while (groups < moves && groups < blockDim.x / 32) groups *= 2;
    const uint32_t threads = blockDim.x / groups, group = threadIdx.x / threads,
                   t = threadIdx.x % threads;
    for (uint32_t i = group; i < moves; i += groups)
      copy_piece(range, n + i, slice, 0, ~uint64_t{0}, {t, threads, blockIdx.x, gridDim.x});
  }

  // The same for a block's part of each copy. Its warps alternate.
  __device__ void move_tiles(const StepRange& range, uint32_t n, uint32_t moves, uint64_t slice) {
    constexpr uint64_t kTile = 16 * 512;
    const uint64_t bytes = range.part * a_.element;
    const auto tiles = static_cast<uint32_t>((bytes + kTile - 1) / kTile);
    for (uint32_t i = threadIdx.x / 32; i < moves * tiles; i += blockDim.x / 32)
      copy_piece(range, n + i % moves, slice, i / moves * kTile, kTile,
                 {threadIdx.x % 32, 32, 0, 1});
  }

  // Up to `bytes` of a copying step, from `at` on.
  __device__ void copy_piece(const StepRange& range, uint32_t n, uint64_t slice, uint64_t at,
                             uint64_t bytes, const Team& team) {
    const ProgramStep& step = a_.step(n);
    const uint64_t all = length(a_, range, step, 0, slice) * a_.element;
    if (at >= all) return;
    const ProgramOperand* from = &a_.operand(step.first_operand);
    const std::byte* source = find(range, from[0], 0, slice) + at;
    std::byte* destination = find(range, from[1], 0, slice) + at;
    if (source != destination)
      copy<kCopied<Type>>(source, &destination, 1, all - at < bytes ? all - at : bytes, false,
                          team);
  }

  // The last block of all ranks that stops drawing resets the counters for the next kernel. The
  // next kernel moves nothing on any rank before this one has ended on all.
  __device__ void finish_drawing() {
    const uint32_t last = gridDim.x * static_cast<uint32_t>(comm_.nranks) - 1;
    Mailbox& common = *comm_.mailboxes[0];
    if (threadIdx.x == blockDim.x - 1 && atomicInc(&common.finished, last) == last)
      for (uint32_t i = 0; i < moved_; i++) common.drawn[i] = 0;
    moved_ = 0;
  }

  static __device__ bool moves(const Movement& m) {
    return m.elements != 0 && !(m.source_count == 1 && m.destination_count == 1 && m.scaled == 0 &&
                                m.sources[0] == m.destinations[0]);
  }

  __device__ Team all_blocks(const StepRange& range) {
    Team team = whole_grid();
    if (!comm_.one_device) return team;
    const auto rank = static_cast<uint32_t>(comm_.rank), n = static_cast<uint32_t>(comm_.nranks);
    if (range.together) {
      team.cta = team.cta * n + rank;
      team.ctas *= n;
      team.drawn = &comm_.mailboxes[0]->drawn[moved_++];
    } else {
      team.turn = rank;
      team.turns = n;
    }
    return team;
  }

  __device__ void move(const StepRange& range, const ProgramStep& step, int32_t c, uint64_t slice) {
    const uint64_t elements = length(a_, range, step, c, slice);
    Movement& m = shared_.movement;
    const ProgramOperand* from = &a_.operand(step.first_operand);
    for (uint32_t i = threadIdx.x; i < step.sources; i += blockDim.x) {
      m.sources[i] = find(range, from[i], c, slice);
      m.scalars[i] = from[i].owner >= 0 ? shared_.scalars[from[i].owner] : a_.reduction.scalar_bits;
    }
    for (uint32_t i = threadIdx.x; i < step.destinations; i += blockDim.x)
      m.destinations[i] = find(range, from[step.sources + i], c, slice);
    if (threadIdx.x == 0) {
      m.aligned = false;  // not known
      m.source_count = step.sources;
      m.destination_count = step.destinations;
      m.scaled = a_.reduction.premultiply ? step.raw_sources : 0;
      m.divide_by = step.completes ? a_.reduction.divide_by : 0;
      m.elements = std::is_same_v<Type, Bytes> ? elements * a_.element : elements;
    }
    __syncthreads();
    if (moves(m))
      combine<Type, Op>(
          m, range.protocol == Protocol::kPeerMemory ? all_blocks(range) : whole_block());
    if (step.count > 1) __syncthreads();  // the next chunk overwrites the movement
  }

  const KernelArguments& a_;
  const DeviceComm& comm_;
  Mailbox& mine_;
  BlockState& shared_;
  const uint32_t announced_;
  uint32_t met_;
  uint32_t moved_ = 0;  // chunks that the blocks have drawn tiles of
};

// The arguments are in shared memory. Both sizes of the kernel below call it.
template <typename Type, typename Op>
__device__ __noinline__ void run_program(KernelArguments& a, uint32_t announced, uint32_t met) {
  __shared__ BlockState shared;
  if (threadIdx.x == 0) {
    shared.stopped = false;
    shared.fall_back = false;
    shared.movement.aligned = true;
  }
  __syncthreads();
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  ProgramRunner<Type, Op>(a, announced, met, shared).run();
}

template <typename Type, typename Op, size_t kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    program_kernel(const __grid_constant__ ParameterBytes<kBytes> bytes) {
  __shared__ ParameterBytes<kBytes> copy;
  const auto& arguments = reinterpret_cast<const KernelArguments&>(bytes);
  if (arguments.mine == nullptr) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, arguments.bytes);
  const Mailbox* mine = arguments.mine;
  wait_for_predecessor();
  const uint32_t announced = load_volatile(&mine->announced[blockIdx.x]),
                 met = load_volatile(&mine->met[blockIdx.x]);
  parameters.store(&copy);
  run_program<Type, Op>(reinterpret_cast<KernelArguments&>(copy), announced, met);
  // Only after all peers have done their work: the next kernel needs the SMs of this one.
  let_successor_start();
}

}  // namespace weft::cuda
