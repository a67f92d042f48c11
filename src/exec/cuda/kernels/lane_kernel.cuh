// Runs a LaneProgram. The first warp of a block leads: it looks for an item whose next step can run,
// one thread per dependency, message and port. Then all threads move the step's data, and the
// leaders tell the peers. A step that has no data to move needs only the leaders.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"
#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// A lane and an instance of it, and how far this block has come with it. In shared memory.
struct LaneItem {
  uint32_t lane, instance, step, iteration;
};

// Shared by the threads of a block.
struct LaneShared {
  Movement movement;
  uint64_t places[kMostEnds];  // that the consumers of the step's destinations have granted
  uint32_t rounds;             // movements of the current step
  bool finished;
};

template <typename Type, typename Op>
class LaneRunner {
 public:
  __device__ LaneRunner(const LaneArguments& a, LaneShared& shared, LaneItem* items)
      : a_(a), p_(a.program), shared_(shared), items_(items) {
    own_ = a.items > blockIdx.x ? (a.items - blockIdx.x - 1) / gridDim.x + 1 : 0;
  }

  __device__ void run() {
    call_ = *static_cast<const volatile uint32_t*>(&a_.counters->call) + 1;
    if (leads()) enter();
    for (;;) {
      if (leads()) find();
      __syncthreads();
      if (shared_.finished) return leave();
      const uint32_t rounds = shared_.rounds;
      for (uint32_t round = 0; round < rounds; round++) {
        if (round > 0) {
          if (leads()) aim(round);
          __syncthreads();
        }
        if (shared_.movement.elements > 0)
          combine<Type, Op>(shared_.movement, whole_block());
        __syncthreads();
      }
      if (leads()) complete();
    }
  }

 private:
  static __device__ bool leads() { return threadIdx.x < kWarp; }

  // Takes the items, and tells producers that they may send.
  __device__ void enter() {
    for (uint32_t i = threadIdx.x; i < own_; i += kWarp) {
      const uint32_t item = blockIdx.x + i * gridDim.x;
      const uint32_t instance = item / p_.lane_count, lane = item - instance * p_.lane_count;
      items_[i] = {lane, instance, 0, p_.lanes[lane].steps == 0 ? a_.iterations : 0};
    }
    if (threadIdx.x == 0) shared_.finished = false;
    warp_meet();
    for (uint32_t i = 0; i < own_; i++) {
      if (items_[i].iteration == 0) left_++;
      const LaneRange& lane = p_.lanes[items_[i].lane];
      for (uint32_t r = threadIdx.x; r < lane.receives; r += kWarp) {
        const LanePort& port = p_.receives[p_.lane_receives[lane.first_receive + r]];
        const uint64_t place = a_.output_place;
        store_packet(&port.credits[number_of(port.credit_position, items_[i].instance)].grant,
                     static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), call_,
                     call_ ^ a_.signature);
      }
    }
  }
  __device__ uint32_t number_of(uint32_t position, uint32_t instance) const {
    return position * a_.instances + instance;
  }
  __device__ Tail& tail(const LanePort& port) const {
    return port.tails[number_of(port.position, item_->instance)];
  }
  __device__ Credit& credit(const LanePort& port) const {
    return port.credits[number_of(port.credit_position, item_->instance)];
  }

  // Finds an item that can do its next step, and does steps that move nothing.
  __device__ void find() {
    Patience patience;
    uint32_t looked = 0;
    for (;;) {
      if (left_ == 0) return finish();
      item_ = &items_[next_];
      if (item_->iteration < a_.iterations) {
        if (ready()) {
          looked = 0;
          patience.start_again();
          const uint32_t rounds = aim(0);
          if (rounds > 0) {
            if (threadIdx.x == 0) shared_.rounds = rounds;
            return;
          }
          complete();
          continue;
        }
        if (waits_other_call_) {
          if (threadIdx.x == 0) report(a_.watch, KernelError::kOtherCall, waits_for_);
          return finish();
        }
      }
      if (++next_ == own_) next_ = 0;
      if (++looked < own_) continue;
      looked = 0;
      if (warp_ballot(!patience.lasts(a_.watch, waits_for_)) != 0) return finish();
    }
  }
  __device__ void finish() {
    if (threadIdx.x == 0) shared_.finished = true;
  }

  __device__ uint64_t number(const LanePort& port, const LaneOperand& operand) const {
    return uint64_t{item_->iteration} * port.per_iteration + operand.order;
  }

  // Whether the dependencies of the item's step are complete, its messages have arrived and its
  // ports have room.
  __device__ bool ready() {
    step_ = &p_.steps[p_.lanes[item_->lane].first_step + item_->step];
    const uint32_t ends = uint32_t{step_->sources} + step_->destinations,
                   all = ends + step_->dependencies;
    bool mine = true, other_call = false;
    int waits = -1;
    for (uint32_t i = threadIdx.x; i < all; i += kWarp) {
      bool here = true;
      if (i >= ends) {
        here = is_complete(p_.dependencies[step_->first_dependency + i - ends]);
      } else {
        const LaneOperand& operand = p_.operands[step_->first_operand + i];
        if (operand.kind != LaneOperand::kMessage) continue;
        if (i < step_->sources) {
          const LanePort& port = p_.receives[operand.port];
          here = load_acquire(&tail(port).tail, a_.system) >=
                 call_word(call_, number(port, operand) + 1);
          if (!here) waits = port.peer;
        } else {
          const LanePort& port = p_.sends[operand.port];
          uint64_t place = kPrivate;
          here = has_room(port, number(port, operand), place, other_call);
          if (i - step_->sources < kMostEnds) shared_.places[i - step_->sources] = place;
          if (!here) waits = port.peer;
        }
      }
      mine = mine && here;
    }
    const uint32_t blocked = warp_ballot(!mine);
    warp_meet();
    if (blocked == 0) return true;
    const uint32_t first = static_cast<uint32_t>(__ffs(static_cast<int>(blocked))) - 1;
    waits_for_ = warp_get(waits, first);
    waits_other_call_ = warp_ballot(other_call) != 0;
    return false;
  }

  __device__ bool is_complete(const ProgramDependency& d) const {
    const uint64_t steps = uint64_t{item_->iteration} * p_.lanes[d.lane].steps + d.step + 1;
    return load_acquire(&a_.progress[item_->instance * p_.lane_count + d.lane], false) >=
           call_word(call_, steps);
  }

  __device__ bool has_room(const LanePort& port, uint64_t n, uint64_t& place, bool& other_call) {
    const Packet grant = load_packet(&credit(port).grant);
    const bool room =
        n < a_.slots ||
        load_acquire(&credit(port).head, a_.system) >= call_word(call_, n + 1 - a_.slots);
    if (grant.flag0 != call_) return false;
    if (grant.flag1 != (call_ ^ a_.signature)) {
      // A packet may arrive in two halves, so a mismatch counts only if it persists.
      if (++foreign_ > 4096) other_call = true;
      return false;
    }
    place = uint64_t{grant.data1} << 32 | grant.data0;
    return room;
  }

  // Elements of a chunk that this iteration and instance move, and where they begin in it.
  __device__ uint64_t slice_begin() const {
    return (uint64_t{item_->iteration} * a_.instances + item_->instance) * a_.slice;
  }
  __device__ uint64_t slice_length(int32_t sub) const {
    const uint64_t begin = static_cast<uint64_t>(sub) * a_.chunk + slice_begin();
    const uint64_t end = static_cast<uint64_t>(sub) * a_.chunk + a_.chunk;
    const uint64_t all = end < a_.count ? end : a_.count;
    if (begin >= all) return 0;
    return all - begin < a_.slice ? all - begin : a_.slice;
  }
  __device__ int32_t sub_of(int32_t c) const {
    const int32_t sub = step_->sub + c;
    return sub < p_.chunks ? sub : sub % p_.chunks;
  }
  // In bytes from the begin of a buffer.
  __device__ uint64_t offset(LaneOperand::Kind kind, uint32_t index) const {
    if (kind == LaneOperand::kScratch)
      return (index * a_.chunk + slice_begin()) * a_.element;
    const auto chunks = static_cast<uint32_t>(p_.chunks);
    const uint32_t block = chunks == 1 ? index : index / chunks;
    return (block * a_.stride + a_.begin + (index - block * chunks) * a_.chunk + slice_begin()) *
           a_.element;
  }
  __device__ std::byte* memory(LaneOperand::Kind kind, uint32_t index) const {
    std::byte* base = kind == LaneOperand::kInput    ? const_cast<std::byte*>(a_.input)
                      : kind == LaneOperand::kOutput ? a_.output
                                                     : a_.pool + a_.scratch_at;
    return base + offset(kind, index);
  }
  __device__ std::byte* slot(const LanePort& port, uint64_t n) const {
    const auto at = static_cast<uint32_t>(n % a_.slots);
    const uint64_t fifo = number_of(port.position, item_->instance);
    return port.pool + (fifo * a_.slots + at) * a_.slot_bytes;
  }

  // Whether the producer writes a message straight to `operand.straight`. Both ends decide alike.
  // `place`: what the consumer has granted.
  static __device__ bool is_straight(const LaneOperand& operand, const LanePort& port,
                                     uint64_t place) {
    if (operand.straight == LaneOperand::kMessage || port.reachable == 0) return false;
    return operand.straight == LaneOperand::kScratch || place != kPrivate;
  }
  __device__ static std::byte* locate(const LanePort& port, uint64_t place) {
    if (port.registrations == nullptr) return reinterpret_cast<std::byte*>(place);
    const uint64_t* mapped = port.registrations + ((place >> kOffsetBits) - 1);
    return reinterpret_cast<std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                        (place & ((uint64_t{1} << kOffsetBits) - 1)));
  }

  // The addresses of source i, for chunk c, whose data begins `before` bytes into messages.
  __device__ const std::byte* source(const LaneOperand& operand, uint32_t c, uint64_t before) {
    if (operand.kind != LaneOperand::kMessage)
      return memory(operand.kind, static_cast<uint32_t>(operand.index) + c);
    const LanePort& port = p_.receives[operand.port];
    if (is_straight(operand, port, a_.output_place))
      return memory(operand.straight, static_cast<uint32_t>(operand.index) + c);
    return slot(port, number(port, operand)) + before;
  }
  __device__ std::byte* destination(uint32_t i, const LaneOperand& operand, uint32_t c,
                                    uint64_t before) {
    if (operand.kind != LaneOperand::kMessage)
      return memory(operand.kind, static_cast<uint32_t>(operand.index) + c);
    const LanePort& port = p_.sends[operand.port];
    uint64_t place = kPrivate;
    bool other_call = false;
    if (i < kMostEnds) {
      place = shared_.places[i];
    } else {
      has_room(port, 0, place, other_call);
    }
    if (!is_straight(operand, port, place)) return slot(port, number(port, operand)) + before;
    std::byte* base =
        operand.straight == LaneOperand::kScratch ? port.pool + a_.scratch_at : locate(port, place);
    return base + offset(operand.straight, static_cast<uint32_t>(operand.index) + c);
  }

  // Prepares the movement of a round: one chunk, to at most kMostEnds destinations. Returns the
  // number of rounds.
  __device__ uint32_t aim(uint32_t round) {
    if (step_->count == 0) return 0;
    const uint32_t passes = (step_->destinations + kMostEnds - 1) / kMostEnds;
    uint32_t c = round, pass = 0;
    if (passes > 1) {
      c = round / passes;
      pass = round - c * passes;
    }
    uint64_t before = 0;
    for (uint32_t k = 0; k < c; k++) before += slice_length(sub_of(static_cast<int32_t>(k)));
    before *= a_.element;
    const uint64_t elements = slice_length(sub_of(static_cast<int32_t>(c)));
    Movement& m = shared_.movement;
    const LaneOperand* from = p_.operands + step_->first_operand;
    const std::byte* only = step_->sources == 1 ? source(from[0], c, before) : nullptr;
    bool aligned = true;
    uint64_t scaled = 0;
    for (uint32_t g = 0; g < step_->sources; g += kWarp) {
      const uint32_t i = g + threadIdx.x;
      bool raw = false;
      if (i < step_->sources) {
        const std::byte* at = step_->sources == 1 ? only : source(from[i], c, before);
        m.sources[i] = at;
        m.scalars[i] = a_.reduction.scalar_bits;
        raw = a_.reduction.premultiply && from[i].raw;
        aligned = aligned && reinterpret_cast<uintptr_t>(at) % 16 == 0;
      }
      scaled |= static_cast<uint64_t>(warp_ballot(raw)) << g;
    }
    const LaneOperand* to = from + step_->sources;
    uint32_t count = 0;
    for (uint32_t g = 0; g < kMostEnds && pass * kMostEnds + g < step_->destinations; g += kWarp) {
      const uint32_t i = pass * kMostEnds + g + threadIdx.x;
      std::byte* at = nullptr;
      if (i < step_->destinations) at = destination(i, to[i], c, before);
      // Data that is there already stays.
      const bool moves = at != nullptr && (at != only || scaled != 0);
      const uint32_t all = warp_ballot(moves);
      if (moves) {
        m.destinations[count + __popc(all & ((1u << threadIdx.x) - 1))] = at;
        aligned = aligned && reinterpret_cast<uintptr_t>(at) % 16 == 0;
      }
      count += __popc(all);
    }
    aligned = warp_ballot(!aligned) == 0;
    const uint64_t moved = count == 0 ? 0 : elements;
    if (threadIdx.x == 0) {
      m.source_count = step_->sources;
      m.destination_count = count;
      m.scaled = scaled;
      m.divide_by = step_->completes ? a_.reduction.divide_by : 0;
      m.aligned = aligned;
      if constexpr (kToldLater<Op>) m.op = a_.reduction.op;
      m.elements = std::is_same_v<Type, Bytes> ? moved * a_.element : moved;
    }
    if (step_->count == 1 && passes <= 1 && moved == 0) return 0;
    return static_cast<uint32_t>(step_->count) * (passes == 0 ? 1 : passes);
  }

  // The step's data has been moved. Gives slots back, tells consumers, and counts the step.
  __device__ void complete() {
    const uint32_t ends = uint32_t{step_->sources} + step_->destinations;
    bool posts = step_->counted;
    for (uint32_t i = threadIdx.x; i < ends; i += kWarp) {
      const LaneOperand& operand = p_.operands[step_->first_operand + i];
      if (operand.kind != LaneOperand::kMessage) continue;
      if (i >= step_->sources) {
        posts = true;
        continue;
      }
      const LanePort& port = p_.receives[operand.port];
      const uint64_t n = number(port, operand);
      if (n + a_.slots < uint64_t{a_.iterations} * port.per_iteration)
        store_relaxed(&credit(port).head, call_word(call_, n + 1), a_.system);
    }
    if (warp_ballot(posts) != 0) {
      fence(a_.system);
      for (uint32_t i = step_->sources + threadIdx.x; i < ends; i += kWarp) {
        const LaneOperand& operand = p_.operands[step_->first_operand + i];
        if (operand.kind != LaneOperand::kMessage) continue;
        const LanePort& port = p_.sends[operand.port];
        store_relaxed(&tail(port).tail,
                      call_word(call_, number(port, operand) + 1), a_.system);
      }
    }
    const LaneRange& lane = p_.lanes[item_->lane];
    if (step_->counted && threadIdx.x == 0)
      store_relaxed(&a_.progress[item_->instance * p_.lane_count + item_->lane],
                    call_word(call_, uint64_t{item_->iteration} * lane.steps + item_->step + 1),
                    false);
    advance(lane);
  }

  __device__ void advance(const LaneRange& lane) {
    const bool wraps = item_->step + 1 == lane.steps;
    const bool ends = wraps && item_->iteration + 1 == a_.iterations;
    warp_meet();  // all have read the item
    if (threadIdx.x == 0) {
      item_->step = wraps ? 0 : item_->step + 1;
      if (wraps) item_->iteration++;
    }
    warp_meet();
    if (ends) left_--;
  }

  // The last block of the rank counts the call.
  __device__ void leave() {
    if (threadIdx.x != 0) return;
    fence(false);
    if (atomicAdd(&a_.counters->leaving, 1) != gridDim.x - 1) return;
    a_.counters->leaving = 0;
    a_.counters->call = call_;
    fence(false);
  }

  const LaneArguments& a_;
  const LaneProgram& p_;
  LaneShared& shared_;
  LaneItem* const items_;
  uint32_t own_, call_;
  // The leaders' only, equal in all of them.
  uint32_t left_ = 0, next_ = 0;
  LaneItem* item_ = nullptr;
  const LaneStep* step_ = nullptr;
  int waits_for_ = -1;
  uint32_t foreign_ = 0;
  bool waits_other_call_ = false;
};

template <typename Type, typename Op>
__device__ __noinline__ void run_lanes(const LaneArguments& a, LaneItem* items) {
  __shared__ LaneShared shared;
  LaneRunner<Type, Op>(a, shared, items).run();
}

#ifdef __CUDACC__
template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    lane_kernel(const __grid_constant__ LaneArguments arguments) {
  extern __shared__ LaneItem lane_items[];
  __shared__ LaneArguments a;
  if (arguments.counters == nullptr) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, sizeof arguments);
  parameters.store(&a);
  __syncthreads();
  wait_for_predecessor();
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  run_lanes<Type, Op>(a, lane_items);
  let_successor_start();
}
#endif

}  // namespace weft::cuda
