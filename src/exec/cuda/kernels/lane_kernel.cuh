// Runs lanes. The first warp of a block leads: it looks for an item whose next step can run, one
// thread per dependency, message and port. Then all threads move the step's data, and the leaders
// tell the peers. A step that has no data to move needs only the leaders.
//
// Small messages are packets: data and flags in one store. All threads wait for their own.
#pragma once

#include "src/exec/cuda/kernels/lane_packets.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"

namespace weft::cuda {

// A lane and an instance of it, and how far this block has come with it. In shared memory.
struct LaneItem {
  LaneHead* lane;
  uint32_t number, instance;  // number: of the lane
  uint32_t call;
  uint32_t step, iteration, iterations;
};

// Shared by the threads of a block.
struct LaneShared {
  Movement movement;
  PacketFlags flags;
  uint32_t rounds;  // movements of the current step
  bool finished;    // written by leaders, before all meet
  bool stopped;     // written while data is moved
};

template <typename Type, typename Op>
class LaneRunner {
 public:
  __device__ LaneRunner(const LaneArguments& a, LaneShared& shared, LaneItem* items)
      : a_(a), shared_(shared), items_(items) {
    own_ = a.items > blockIdx.x ? (a.items - blockIdx.x - 1) / gridDim.x + 1 : 0;
  }

  // `room`: for the block's lanes, if they fit into shared memory.
  __device__ void run(std::byte* room) {
    take_items(room);
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
        if (a_.packets) {
          if (!move_packets<Type, Op>(a_, shared_.movement, shared_.flags)) shared_.stopped = true;
        } else if (shared_.movement.elements > 0) {
          combine<Type, Op>(shared_.movement, whole_block());
        }
        __syncthreads();
      }
      if (shared_.stopped) return leave();
      if (leads()) complete();
    }
  }

 private:
  static __device__ bool leads() { return threadIdx.x < kWarp; }

  // All threads: the block's items, and copies of their lanes.
  __device__ void take_items(std::byte* room) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < own_; i++) {
      const uint32_t number = blockIdx.x + i * gridDim.x;
      const uint32_t instance = number / a_.lane_count, lane = number - instance * a_.lane_count;
      auto* from = const_cast<LaneHead*>(
          reinterpret_cast<const LaneHead*>(a_.lanes + a_.lane_at[lane]));
      auto* to = from;
      if (a_.in_shared) {
        to = reinterpret_cast<LaneHead*>(room + used);
        const uint32_t bytes = from->bytes;
        for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
          *reinterpret_cast<uint4*>(room + used + at) = *reinterpret_cast<const uint4*>(
              reinterpret_cast<const std::byte*>(from) + at);
        used += bytes;
      }
      if (threadIdx.x == 0)
        items_[i] = {to, lane, instance, 0, 0, 0, from->own ? from->data.iterations
                                                            : a_.data.iterations};
    }
    if (threadIdx.x == 0) shared_.finished = shared_.stopped = false;
    __syncthreads();
  }

  // Tells producers that they may send.
  __device__ void enter() {
    const uint32_t call = load_volatile(&a_.counters->call) + 1;
    for (uint32_t i = 0; i < own_; i++) {
      LaneItem& item = items_[i];
      const LaneHead& lane = *item.lane;
      const bool idle = lane.steps == 0 || item.instance >= data_of(lane).instances;
      const uint32_t this_call =
          lane.own ? load_volatile(lane.counter + item.instance) + 1 : call;
      if (threadIdx.x == 0) {
        item.call = this_call;
        if (idle) item.iteration = item.iterations;
      }
      if (idle) continue;
      left_++;
      const uint64_t place = data_of(lane).output_place;
      const auto* ports = lane.at<LanePort>(lane.receives_at);
      for (uint32_t r = threadIdx.x; r < lane.receives; r += kWarp)
        store_packet(&ports[r].credits[number_of(ports[r].credit_position, item.instance)].grant,
                     static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), this_call,
                     this_call ^ a_.signature);
    }
    warp_meet();
  }
  __device__ uint32_t number_of(uint32_t position, uint32_t instance) const {
    return position * a_.word_instances + instance;
  }
  __device__ const LaneData& data_of(const LaneHead& lane) const {
    return lane.own ? lane.data : a_.data;
  }
  __device__ Credit& credit(const LanePort& port) const {
    return port.credits[number_of(port.credit_position, item_->instance)];
  }
  __device__ Tail& tail(const LanePort& port) const {
    return port.tails[number_of(port.position, item_->instance)];
  }
  __device__ LanePort& port_of(const LaneOperand& operand, bool receives) const {
    LaneHead& lane = *item_->lane;
    return const_cast<LanePort*>(
        lane.at<LanePort>(receives ? lane.receives_at : lane.sends_at))[operand.port];
  }
  __device__ const LaneOperand* operands() const {
    return item_->lane->at<LaneOperand>(item_->lane->operands_at) + step_->first_operand;
  }

  // Finds an item that can do its next step, and does steps that move nothing.
  __device__ void find() {
    Patience patience;
    uint32_t looked = 0;
    for (;;) {
      if (left_ == 0) return finish();
      item_ = &items_[next_];
      if (item_->iteration < item_->iterations) {
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
    step_ = item_->lane->at<LaneStep>(sizeof(LaneHead)) + item_->step;
    const uint32_t ends = uint32_t{step_->sources} + step_->destinations,
                   all = ends + step_->dependencies;
    const LaneOperand* list = operands();
    bool mine = true, other_call = false;
    int waits = -1;
    for (uint32_t i = threadIdx.x; i < all; i += kWarp) {
      bool here = true;
      if (i >= ends) {
        here = is_complete(item_->lane->at<LaneDependency>(
            item_->lane->dependencies_at)[step_->first_dependency + i - ends]);
      } else if (list[i].kind == LaneOperand::kMessage) {
        LanePort& port = port_of(list[i], i < step_->sources);
        const uint64_t n = number(port, list[i]);
        here = i < step_->sources ? has_arrived(port, n) : has_room(port, n, other_call);
        if (!here) waits = port.peer;
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

  __device__ bool is_complete(const LaneDependency& d) const {
    const uint64_t steps = uint64_t{item_->iteration} * d.steps + d.step + 1;
    return load_acquire(&a_.progress[item_->instance * a_.lane_count + d.lane], false) >=
           call_word(item_->call, steps);
  }

  __device__ bool has_arrived(LanePort& port, uint64_t n) {
    if (a_.packets) {
      // A block with one item waits for the packets themselves.
      return own_ == 1 || load_packet(packet_slot(port, n)).flag0 == item_->call;
    }
    const uint64_t goal = call_word(item_->call, n + 1);
    if (a_.in_shared && port.seen >= goal) return true;
    const uint64_t seen = load_acquire(&tail(port).tail, a_.system);
    if (a_.in_shared) port.seen = seen;
    return seen >= goal;
  }

  __device__ bool has_room(LanePort& port, uint64_t n, bool& other_call) {
    if (!a_.in_shared || port.seen < call_word(item_->call, 0)) {
      const Packet grant = load_packet(&credit(port).grant);
      if (grant.flag0 != item_->call) return false;
      if (grant.flag1 != (item_->call ^ a_.signature)) {
        // A packet may arrive in two halves, so a mismatch counts only if it persists.
        if (++foreign_ > 4096) other_call = true;
        return false;
      }
      if (a_.in_shared) {
        port.place = uint64_t{grant.data1} << 32 | grant.data0;
        port.seen = call_word(item_->call, 0);
      }
    }
    if (n < a_.slots) return true;
    const uint64_t goal = call_word(item_->call, n + 1 - a_.slots);
    if (a_.in_shared && port.seen >= goal) return true;
    const uint64_t seen = load_acquire(&credit(port).head, a_.system);
    if (a_.in_shared && seen > port.seen) port.seen = seen;
    return seen >= goal;
  }

  // Elements of a chunk that this iteration and instance move, and where they begin in it.
  __device__ uint64_t slice_begin(const LaneData& d) const {
    return (uint64_t{item_->iteration} * d.instances + item_->instance) * d.slice;
  }
  __device__ uint64_t slice_length(const LaneData& d, int32_t sub) const {
    const uint64_t first = static_cast<uint64_t>(sub) * d.chunk, begin = first + slice_begin(d);
    const uint64_t all = first + d.chunk < d.count ? first + d.chunk : d.count;
    if (begin >= all) return 0;
    return all - begin < d.slice ? all - begin : d.slice;
  }
  __device__ int32_t sub_of(uint32_t c) const {
    const int32_t sub = step_->sub + static_cast<int32_t>(c);
    return sub < a_.chunks ? sub : sub % a_.chunks;
  }
  // In bytes from the begin of a buffer.
  __device__ uint64_t offset(const LaneData& d, LaneOperand::Kind kind, uint32_t index) const {
    if (kind == LaneOperand::kScratch) return (index * d.chunk + slice_begin(d)) * a_.element;
    const auto chunks = static_cast<uint32_t>(a_.chunks);
    const uint32_t block = chunks == 1 ? index : index / chunks;
    return (block * d.stride + d.begin + (index - block * chunks) * d.chunk + slice_begin(d)) *
           a_.element;
  }
  __device__ std::byte* memory(const LaneData& d, LaneOperand::Kind kind, uint32_t index) const {
    std::byte* base = kind == LaneOperand::kInput    ? const_cast<std::byte*>(d.input)
                      : kind == LaneOperand::kOutput ? d.output
                                                     : a_.pool + a_.scratch_at;
    return base + offset(d, kind, index);
  }
  __device__ uint64_t slot_number(const LanePort& port, uint64_t n) const {
    const auto at = static_cast<uint32_t>(n % a_.slots);
    return uint64_t{number_of(port.position, item_->instance)} * a_.slots + at;
  }
  __device__ Packet* packet_slot(const LanePort& port, uint64_t n) const {
    return port.packets + slot_number(port, n) * (a_.slot_bytes / sizeof(Packet));
  }

  // Whether the producer writes a message straight to `operand.straight`. Both ends decide alike.
  // `place`: what the consumer has granted.
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
  // Granted by the consumer; has_room() has seen it.
  __device__ uint64_t place_of(const LanePort& port) const {
    if (a_.in_shared) return port.place;
    const Packet grant = load_packet(&credit(port).grant);
    return uint64_t{grant.data1} << 32 | grant.data0;
  }

  // The address of an operand, for chunk c, whose data begins `before` bytes into messages.
  // `flag`: the packets' flag; 0: plain memory.
  __device__ std::byte* address(const LaneOperand& operand, bool receives, uint32_t c,
                                uint64_t before, uint32_t& flag) {
    const LaneData& d = data_of(*item_->lane);
    const uint32_t index = static_cast<uint32_t>(operand.index) + c;
    flag = 0;
    if (operand.kind != LaneOperand::kMessage) return memory(d, operand.kind, index);
    const LanePort& port = port_of(operand, receives);
    const uint64_t place = receives ? d.output_place : place_of(port);
    if (is_straight(operand, port, place)) {
      if (receives) return memory(d, operand.straight, index);
      std::byte* base = operand.straight == LaneOperand::kScratch ? port.pool + a_.scratch_at
                                                                  : locate(port, place);
      return base + offset(d, operand.straight, index);
    }
    const uint64_t n = number(port, operand);
    if (!a_.packets) return port.pool + slot_number(port, n) * a_.slot_bytes + before;
    flag = item_->call;
    return reinterpret_cast<std::byte*>(packet_slot(port, n) + before);
  }

  // Prepares the movement of a round: one chunk, to at most kMostEnds destinations. Returns the
  // number of rounds.
  __device__ uint32_t aim(uint32_t round) {
    if (step_->count == 0 && !a_.packets) return 0;
    const uint32_t passes = (step_->destinations + kMostEnds - 1) / kMostEnds;
    uint32_t c = round, pass = 0;
    if (passes > 1) {
      c = round / passes;
      pass = round - c * passes;
    }
    const LaneData& d = data_of(*item_->lane);
    // Bytes of the message before this chunk, or packets.
    uint64_t before = 0;
    for (uint32_t k = 0; k < c; k++) {
      const uint64_t bytes = slice_length(d, sub_of(k)) * a_.element;
      before += a_.packets ? (bytes + 7) / 8 : bytes;
    }
    const uint64_t elements = step_->count == 0 ? 0 : slice_length(d, sub_of(c));
    Movement& m = shared_.movement;
    const LaneOperand* from = operands();
    bool aligned = true;
    uint64_t scaled = 0;
    uint32_t messages = 0, flag = 0;
    std::byte* only = step_->sources == 1 ? address(from[0], true, c, before, flag) : nullptr;
    if (flag != 0) only = nullptr;
    for (uint32_t g = 0; g < step_->sources; g += kWarp) {
      const uint32_t i = g + threadIdx.x;
      bool raw = false;
      flag = 0;
      if (i < step_->sources) {
        const std::byte* at = address(from[i], true, c, before, flag);
        m.sources[i] = at;
        m.scalars[i] = a_.reduction.scalar_bits;
        shared_.flags.sources[i] = flag;
        raw = a_.reduction.premultiply && from[i].raw;
        aligned = aligned && reinterpret_cast<uintptr_t>(at) % 16 == 0;
      }
      scaled |= static_cast<uint64_t>(warp_ballot(raw)) << g;
      messages |= warp_ballot(flag != 0);
    }
    const LaneOperand* to = from + step_->sources;
    uint32_t count = 0;
    for (uint32_t g = 0; g < kMostEnds && pass * kMostEnds + g < step_->destinations; g += kWarp) {
      const uint32_t i = pass * kMostEnds + g + threadIdx.x;
      std::byte* at = nullptr;
      flag = 0;
      if (i < step_->destinations) at = address(to[i], false, c, before, flag);
      // Data that is there already stays.
      const bool moves = at != nullptr && (at != only || scaled != 0);
      const uint32_t all = warp_ballot(moves);
      if (moves) {
        const uint32_t k = count + static_cast<uint32_t>(__popc(all & ((1u << threadIdx.x) - 1)));
        m.destinations[k] = at;
        shared_.flags.destinations[k] = flag;
        aligned = aligned && reinterpret_cast<uintptr_t>(at) % 16 == 0;
      }
      messages |= warp_ballot(flag != 0);
      count += static_cast<uint32_t>(__popc(all));
    }
    aligned = warp_ballot(!aligned) == 0;
    const uint64_t moved = count == 0 && messages == 0 ? 0 : elements;
    if (threadIdx.x == 0) {
      m.source_count = step_->sources;
      m.destination_count = count;
      m.scaled = scaled;
      m.divide_by = step_->completes ? a_.reduction.divide_by : 0;
      m.aligned = aligned;
      if constexpr (kToldLater<Op>) m.op = a_.reduction.op;
      m.elements = std::is_same_v<Type, Bytes> ? moved * a_.element : moved;
      shared_.flags.any = messages != 0;
      shared_.flags.peer = waits_for_;
    }
    if (step_->count <= 1 && passes <= 1 && moved == 0 && messages == 0) return 0;
    const auto rounds = static_cast<uint32_t>(step_->count == 0 ? 1 : step_->count);
    return rounds * (passes == 0 ? 1 : passes);
  }

  // The step's data has been moved. Gives slots back, tells consumers, and counts the step.
  __device__ void complete() {
    const uint32_t ends = uint32_t{step_->sources} + step_->destinations;
    const LaneOperand* list = operands();
    bool posts = step_->counted;
    for (uint32_t i = threadIdx.x; i < ends && !a_.packets; i += kWarp) {
      if (list[i].kind != LaneOperand::kMessage) continue;
      if (i >= step_->sources) {
        posts = true;
        continue;
      }
      const LanePort& port = port_of(list[i], true);
      const uint64_t n = number(port, list[i]);
      if (n + a_.slots < uint64_t{item_->iterations} * port.per_iteration)
        store_relaxed(&credit(port).head, call_word(item_->call, n + 1), a_.system);
    }
    if (warp_ballot(posts) != 0) {
      fence(a_.system);
      for (uint32_t i = step_->sources + threadIdx.x; i < ends && !a_.packets; i += kWarp) {
        if (list[i].kind != LaneOperand::kMessage) continue;
        const LanePort& port = port_of(list[i], false);
        store_relaxed(&tail(port).tail, call_word(item_->call, number(port, list[i]) + 1),
                      a_.system);
      }
    }
    const uint32_t steps = item_->lane->steps;
    if (step_->counted && threadIdx.x == 0)
      store_relaxed(&a_.progress[item_->instance * a_.lane_count + item_->number],
                    call_word(item_->call, uint64_t{item_->iteration} * steps + item_->step + 1),
                    false);
    advance(steps);
  }

  __device__ void advance(uint32_t steps) {
    const bool wraps = item_->step + 1 == steps;
    const bool ends = wraps && item_->iteration + 1 == item_->iterations;
    warp_meet();  // all have read the item
    if (threadIdx.x == 0) {
      item_->step = wraps ? 0 : item_->step + 1;
      if (wraps) item_->iteration++;
      if (ends && item_->lane->own) item_->lane->counter[item_->instance] = item_->call;
    }
    warp_meet();
    if (ends) left_--;
  }

  // The last block of the rank counts the call.
  __device__ void leave() {
    if (threadIdx.x != 0) return;
    const uint32_t call = load_volatile(&a_.counters->call) + 1;
    fence(false);
    if (atomicAdd(&a_.counters->leaving, 1) != gridDim.x - 1) return;
    a_.counters->leaving = 0;
    if (a_.counts) a_.counters->call = call;
    fence(false);
  }

  const LaneArguments& a_;
  LaneShared& shared_;
  LaneItem* const items_;
  uint32_t own_;
  // The leaders' only, equal in all of them.
  uint32_t left_ = 0, next_ = 0;
  LaneItem* item_ = nullptr;
  const LaneStep* step_ = nullptr;
  int waits_for_ = -1;
  uint32_t foreign_ = 0;
  bool waits_other_call_ = false;
};

#ifdef __CUDACC__
template <typename Type, typename Op>
__device__ __noinline__ void run_lanes(const LaneArguments& a, std::byte* room) {
  __shared__ LaneShared shared;
  auto* items = reinterpret_cast<LaneItem*>(room);
  const uint32_t most = (a.items + gridDim.x - 1) / gridDim.x;
  LaneRunner<Type, Op>(a, shared, items).run(room + most * sizeof(LaneItem));
}

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    lane_kernel(const __grid_constant__ LaneArguments arguments) {
  extern __shared__ __align__(16) std::byte room[];
  __shared__ LaneArguments a;
  if (arguments.counters == nullptr) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, sizeof arguments);
  parameters.store(&a);
  __syncthreads();
  wait_for_predecessor();
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  run_lanes<Type, Op>(a, room);
  let_successor_start();
}

// Messages of send/recv: the lanes follow the arguments.
template <size_t kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    message_kernel(const __grid_constant__ ParameterBytes<kBytes> arguments) {
  extern __shared__ __align__(16) std::byte room[];
  __shared__ ParameterBytes<kBytes> copy;
  const auto& given = reinterpret_cast<const MessageArguments&>(arguments);
  if (given.counters == nullptr) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, given.bytes);
  parameters.store(&copy);
  __syncthreads();
  auto& a = reinterpret_cast<MessageArguments&>(copy);
  if (threadIdx.x == 0) {
    a.lanes = copy.bytes;
    a.lane_at = reinterpret_cast<const uint32_t*>(copy.bytes + sizeof(MessageArguments));
  }
  __syncthreads();
  wait_for_predecessor();
  run_lanes<Bytes, Sum>(a, room);
  let_successor_start();
}
#endif

}  // namespace weft::cuda
