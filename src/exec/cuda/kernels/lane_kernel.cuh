// Runs lanes. First all threads of a block resolve the operands of its items. Then the first warp
// leads: it looks for an item whose next step can run, one thread per dependency and operand. All
// threads move the step's data, and the leaders tell the peers. A step that has no data to move
// needs only the leaders.
//
// Small messages are packets: data and flags in one store. All threads wait for their own.
#pragma once

#include "src/exec/cuda/kernels/lane_packets.cuh"
#include "src/exec/cuda/kernels/lane_places.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"

namespace weft::cuda {

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

  // All threads: the block's items. Their lanes are copied, if they fit, and resolved.
  __device__ void take_items(std::byte* room) {
    const uint32_t call = load_volatile(&a_.counters->call) + 1;
    for (uint32_t i = 0; i < own_; i++) {
      const uint32_t number = blockIdx.x + i * gridDim.x;
      const uint32_t instance = number / a_.lane_count, lane = number - instance * a_.lane_count;
      const auto* from = reinterpret_cast<const LaneHead*>(a_.lanes + a_.lane_at[lane]);
      const auto* to = from;
      std::byte* resolved = a_.resolved + uint64_t{number} * a_.resolved_bytes;
      if (a_.in_shared) {
        const uint32_t bytes = from->bytes;
        for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
          *reinterpret_cast<uint4*>(room + at) = *reinterpret_cast<const uint4*>(
              reinterpret_cast<const std::byte*>(from) + at);
        to = reinterpret_cast<const LaneHead*>(room);
        resolved = room + bytes;
        room = resolved + from->resolved_bytes();
      }
      if (threadIdx.x == 0) {
        const LaneData& d = from->own ? from->data : a_.data;
        LaneItem& item = items_[i];
        item.lane = to;
        item.ends = reinterpret_cast<LaneEnd*>(resolved);
        item.lengths = reinterpret_cast<LaneLength*>(item.ends + from->operands);
        item.number = lane;
        item.instance = instance;
        item.call = from->own ? load_volatile(from->counter + instance) + 1 : call;
        item.step = 0;
        item.iterations = d.iterations;
        item.iteration = from->steps == 0 || instance >= d.instances ? d.iterations : 0;
      }
    }
    if (threadIdx.x == 0) shared_.finished = shared_.stopped = false;
    __syncthreads();
    for (uint32_t i = 0; i < own_; i++)
      if (items_[i].iteration < items_[i].iterations) LanePlaces(a_, items_[i]).resolve();
    __syncthreads();
  }

  // Tells producers that they may send.
  __device__ void enter() {
    for (uint32_t i = 0; i < own_; i++) {
      const LaneItem& item = items_[i];
      if (item.iteration == item.iterations) continue;
      left_++;
      const LaneHead& lane = *item.lane;
      const uint64_t place = (lane.own ? lane.data : a_.data).output_place;
      const auto* ports = lane.at<LanePort>(lane.receives_at);
      for (uint32_t r = threadIdx.x; r < lane.receives; r += kWarp)
        store_packet(&LanePlaces(a_, item).credit(ports[r]).grant, static_cast<uint32_t>(place),
                     static_cast<uint32_t>(place >> 32), item.call, item.call ^ a_.signature);
    }
    warp_meet();
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

  // Whether the dependencies of the item's step are complete, its messages have arrived and its
  // ports have room.
  __device__ bool ready() {
    step_ = item_->lane->at<LaneStep>(sizeof(LaneHead)) + item_->step;
    ends_ = item_->ends + step_->first_operand;
    count_ = uint32_t{step_->sources} + step_->destinations;
    const uint32_t all = count_ + step_->dependencies;
    bool mine = true, other_call = false;
    int waits = -1;
    for (uint32_t i = threadIdx.x; i < all; i += kWarp) {
      bool here = true;
      if (i >= count_) {
        here = is_complete(item_->lane->at<LaneDependency>(
            item_->lane->dependencies_at)[step_->first_dependency + i - count_]);
      } else if (ends_[i].message) {
        here = i < step_->sources ? has_arrived(ends_[i]) : has_room(ends_[i], other_call);
        if (!here) waits = i;
      }
      mine = mine && here;
    }
    const uint32_t blocked = warp_ballot(!mine);
    if (blocked == 0) return true;
    const uint32_t first = static_cast<uint32_t>(__ffs(static_cast<int>(blocked))) - 1;
    waits_for_ = peer_of(warp_get(waits, first));
    waits_other_call_ = warp_ballot(other_call) != 0;
    return false;
  }
  // The peer of an operand of the step; -1: it has none.
  __device__ int peer_of(int operand) const {
    if (operand < 0) return -1;
    const LaneHead& lane = *item_->lane;
    const bool receives = static_cast<uint32_t>(operand) < step_->sources;
    return lane.at<LanePort>(receives ? lane.receives_at : lane.sends_at)[ends_[operand].port]
        .peer;
  }

  __device__ bool is_complete(const LaneDependency& d) const {
    const uint64_t steps = uint64_t{item_->iteration} * d.steps + d.step + 1;
    return load_acquire(&a_.progress[item_->instance * a_.lane_count + d.lane], false) >=
           call_word(item_->call, steps);
  }

  __device__ bool has_arrived(const LaneEnd& end) const {
    if (!a_.packets) return load_acquire(end.word, a_.system) >= end.next;
    // A block with one item waits for the packets themselves.
    return own_ == 1 || load_packet(reinterpret_cast<const Packet*>(end.at)).flag0 == item_->call;
  }

  __device__ bool has_room(LaneEnd& end, bool& other_call) {
    if (end.pending) {
      const LaneHead& lane = *item_->lane;
      const LanePort& port = lane.at<LanePort>(lane.sends_at)[end.port];
      const LanePlaces places(a_, *item_);
      const Packet grant = load_packet(&places.credit(port).grant);
      if (grant.flag0 != item_->call) return false;
      if (grant.flag1 != (item_->call ^ a_.signature)) {
        // A packet may arrive in two halves, so a mismatch counts only if it persists.
        if (++foreign_ > 4096) other_call = true;
        return false;
      }
      const auto operand = static_cast<uint32_t>(&end - item_->ends);
      places.settle(end, lane.at<LaneOperand>(lane.operands_at)[operand], port,
                    uint64_t{grant.data1} << 32 | grant.data0);
    }
    if (static_cast<uint32_t>(end.next) <= a_.slots) return true;
    return load_acquire(end.word, a_.system) >= end.next - a_.slots;
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
    const LanePlaces places(a_, *item_);
    uint64_t elements = 0, before = 0;
    if (c == 0) {
      const LaneLength& length = item_->lengths[item_->step];
      elements = item_->iteration < length.full    ? places.data().slice
                 : item_->iteration == length.full ? length.rest
                                                   : 0;
    } else {
      elements = places.length_of(*step_, c);
      before = places.before(*step_, c);
    }
    Movement& m = shared_.movement;
    warp_meet();  // what has_room() has settled
    uint64_t scaled = 0;
    bool aligned = true;
    for (uint32_t g = 0; g < step_->sources; g += kWarp) {
      const uint32_t i = g + threadIdx.x;
      bool raw = false;
      if (i < step_->sources) {
        m.sources[i] = places.of_chunk(ends_[i], step_->first_operand + i, c, before);
        m.scalars[i] = a_.reduction.scalar_bits;
        shared_.flags.sources[i] = ends_[i].kind == LaneEnd::kPacket ? item_->call : 0;
        raw = a_.reduction.premultiply && ends_[i].raw;
        aligned = aligned && ends_[i].aligned;
      }
      scaled |= static_cast<uint64_t>(warp_ballot(raw)) << g;
    }
    const std::byte* only =
        step_->sources == 1 && scaled == 0
            ? places.of_chunk(ends_[0], step_->first_operand, c, before)
            : nullptr;
    uint32_t count = 0;
    for (uint32_t g = 0; g < kMostEnds && pass * kMostEnds + g < step_->destinations; g += kWarp) {
      const uint32_t i = step_->sources + pass * kMostEnds + g + threadIdx.x;
      std::byte* at = nullptr;
      if (i < count_) at = places.of_chunk(ends_[i], step_->first_operand + i, c, before);
      // Data that is there already stays.
      const bool moves = at != nullptr && at != only;
      const uint32_t all = warp_ballot(moves);
      if (moves) {
        const uint32_t k = count + static_cast<uint32_t>(__popc(all & ((1u << threadIdx.x) - 1)));
        m.destinations[k] = at;
        shared_.flags.destinations[k] = ends_[i].kind == LaneEnd::kPacket ? item_->call : 0;
        aligned = aligned && ends_[i].aligned;
      }
      count += static_cast<uint32_t>(__popc(all));
    }
    aligned = warp_ballot(!aligned) == 0 && step_->count <= 1;
    const uint64_t moved = count == 0 ? 0 : elements;
    if (threadIdx.x == 0) {
      m.source_count = step_->sources;
      m.destination_count = count;
      m.scaled = scaled;
      m.divide_by = step_->completes ? a_.reduction.divide_by : 0;
      m.aligned = aligned;
      if constexpr (kToldLater<Op>) m.op = a_.reduction.op;
      m.elements = std::is_same_v<Type, Bytes> ? moved * a_.element : moved;
      shared_.flags.peer = waits_for_;
    }
    const bool nothing = a_.packets ? count_ == 0 : moved == 0 && passes <= 1;
    if (step_->count <= 1 && nothing) return 0;
    const auto rounds = static_cast<uint32_t>(step_->count == 0 ? 1 : step_->count);
    return rounds * (passes == 0 ? 1 : passes);
  }

  // The step's data has been moved. Gives slots back, tells consumers, and counts the step.
  __device__ void complete() {
    const bool wraps = item_->step + 1 == item_->lane->steps;
    const bool ended = wraps && item_->iteration + 1 == item_->iterations;
    if (!a_.packets) {
      const uint64_t messages = uint64_t{item_->iterations};
      bool posts = step_->counted;
      for (uint32_t i = threadIdx.x; i < count_; i += kWarp) {
        const LaneEnd& end = ends_[i];
        if (!end.message) continue;
        if (i >= step_->sources) {
          posts = true;
        } else if (static_cast<uint32_t>(end.next) + a_.slots <= messages * end.per_iteration) {
          store_relaxed(end.told, end.next, a_.system);
        }
      }
      if (warp_ballot(posts) != 0) fence(a_.system);
      for (uint32_t i = threadIdx.x; i < count_; i += kWarp) {
        LaneEnd& end = ends_[i];
        if (end.message && i >= step_->sources) store_relaxed(end.told, end.next, a_.system);
        LanePlaces::advance(end, a_.slots, a_.slot_bytes);
      }
    } else if (step_->counted) {
      fence(a_.system);
    }
    if (step_->counted && threadIdx.x == 0)
      store_relaxed(&a_.progress[item_->instance * a_.lane_count + item_->number],
                    call_word(item_->call, uint64_t{item_->iteration} * item_->lane->steps +
                                               item_->step + 1),
                    false);
    warp_meet();  // all have read the item
    if (threadIdx.x == 0) {
      item_->step = wraps ? 0 : item_->step + 1;
      if (wraps) item_->iteration++;
      if (ended && item_->lane->own) item_->lane->counter[item_->instance] = item_->call;
    }
    warp_meet();
    if (ended) left_--;
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
  LaneEnd* ends_ = nullptr;  // of the step
  uint32_t count_ = 0;       // of them
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
