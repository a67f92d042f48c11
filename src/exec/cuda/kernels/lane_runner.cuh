// Runs lanes. First all threads of a block resolve the operands of its items. Then the first warp
// leads: it looks for an item whose next step can run, one thread per dependency and operand. All
// warps move the step's data, and the leaders tell the peers. In a block with several items the
// leaders do not move data: they tell the peers of the step before, and look for the next one. A
// step that has no data to move needs only the leaders. A single warp takes microseconds for a few
// hundred instructions, so all that can be known before is.
#pragma once

#include "src/exec/cuda/kernels/lane_codecs.cuh"
#include "src/exec/cuda/kernels/lane_packets.cuh"
#include "src/exec/cuda/kernels/lane_tells.cuh"

namespace weft::cuda {

// Items that leaders look at while the workers move data. (Not measured against other numbers.)
inline constexpr uint32_t kLooksAhead = 4;

// Shared by the threads of a block.
struct LaneShared {
  // The one that is moved, and the next one. (A single place for the former: code that knows the
  // address has more registers for data.)
  alignas(16) LaneMovement movement;
  alignas(16) LaneMovement prepared;
  // Their addresses, in turn.
  const std::byte* sources[2][kMostEnds];
  std::byte* destinations[2][kMostEnds];
  LaneEnd source_ends[kMostEnds], destination_ends[kMostEnds];  // of steps that are not simple
  bool finished;  // written by leaders, before all meet
  bool stopped;   // written while data is moved
};

template <typename Type, typename Op>
class LaneRunner : private LaneTells {
 public:
  __device__ LaneRunner(const LaneArguments& a, LaneShared& shared, LaneItem* items,
                        LaneWait* waits)
      : LaneTells(a, items, waits), shared_(shared) {}

  // `room`: for the block's lanes, if they fit into shared memory.
  __device__ void run(std::byte* room) {
    if (threadIdx.x == 0) shared_.finished = shared_.stopped = false;
    take_items(room);
    if (leads()) enter();
    if (a_.packets && own_ == 1) {
      run_packets();
    } else if (a_.warps) {
      run_warps();
    } else if (leads()) {
      lead();
    } else {
      work();
    }
    if (a_.eager && a_.counts && leads()) see_grants(a_, items_, own_);
    // The first thread that ends lets the next kernel start.
    if (a_.eager || a_.packets) __syncthreads();
    leave();
  }

 private:
  // The threads that move data.
  static __device__ BlockTeam all_threads() { return {threadIdx.x, blockDim.x}; }
  __device__ BlockTeam workers() const {
    const uint32_t others = all_work() ? 0 : kWarp;
    return {threadIdx.x - others, blockDim.x - others};
  }

  // All meet twice for every movement: when it is prepared, and when it is done.
  __device__ void work() {
    for (;;) {
      meet_block();
      if (shared_.finished) return;
      move();
      meet_block();
    }
  }
  __device__ void move() {
    const LaneMovement& m = shared_.movement;
    if (a_.packets) {
      if (!move_packets<Type, Op>(a_, m, workers())) store_volatile(&shared_.stopped, true);
      return;
    }
    if (m.elements == 0) return;
    if constexpr (kRunsCodecs<Type, Op>)
      if (m.operands != nullptr) return combine_coded<Type>(a_, m, workers());
    combine<Type, Op, false, LaneMovement>(m, workers());
  }

  // While the workers do a step, peers are told of the one before, and a next one is prepared if it
  // can run at once. Otherwise peers are told before the leaders wait for it. (find() is called in
  // one place, and inlined: what the leaders know lies in registers.)
  __device__ void lead() {
    Told before;
    bool ahead = false;  // the workers do a step
    bool done = false;   // they have done it, and it can not be noted
    uint32_t busy = 0;
    for (;;) {
      const uint32_t rounds = find(ahead, busy, done);
      done = false;
      if (ahead) {
        meet_block();
        ahead = false;
        if (shared_.stopped) break;
        if (rounds == 0) {
          tell(before);
          before = {};
          continue;
        }
      }
      if (rounds == 0) break;
      if (can_look_ahead()) {
        busy = next_;
        const Told now = note_step();
        publish();
        tell(before);
        before = now;
        ahead = true;
        continue;
      }
      for (uint32_t round = 0; round < rounds; round++) {
        if (round > 0) aim_at_round(round);
        publish();
        if (round == 0) tell(before);
        before = {};
        if (all_work()) move();
        meet_block();
      }
      if (shared_.stopped) break;
      done = true;
    }
    if (threadIdx.x == 0) shared_.finished = true;
    meet_block();
  }

  __device__ void enter() {
    next_ = 0;
    if (own_ > 0) item_ = items_[0];
    warp_meet();  // before one of them writes there
  }

  // Messages in packets: lane_packet_runs.cuh.
  __device__ inline void run_packets();
  __device__ inline void run_warps();
  __device__ inline void run_item();
  __device__ inline void run_items();
  __device__ inline bool move_step();
  __device__ inline void pass_packets(const LaneStep* steps, uint32_t count);
  __device__ inline bool pass_words(uint64_t bytes) const;
  static __device__ __noinline__ bool move_small_message(const LaneArguments& a,
                                                         const LaneItem& item);
  static __device__ BlockTeam warp_threads() { return {leader(), kWarp}; }
  __device__ uint32_t packet_rounds() const {
    const uint32_t passes = (step_->destinations + kMostEnds - 1) / kMostEnds;
    return (step_->count == 0 ? 1 : step_->count) * (passes == 0 ? 1 : passes);
  }
  // Where the next movement is prepared: in a place of its own if workers do another meanwhile.
  __device__ LaneMovement& next_movement() {
    return all_work() ? shared_.movement : shared_.prepared;
  }
  // Lets the workers begin with it. They have done everything before.
  __device__ void publish() {
    if (!all_work()) {
      warp_meet();
      auto* to = reinterpret_cast<uint4*>(&shared_.movement);
      const auto* from = reinterpret_cast<const uint4*>(&shared_.prepared);
      for (uint32_t i = threadIdx.x; i < sizeof(LaneMovement) / 16; i += kWarp) to[i] = from[i];
      turn_ ^= 1;
    }
    meet_block();
  }
  // Waits for an item that can do its next step, and prepares that. Does steps that move nothing.
  // `ahead`: without waiting, and no such step of item `busy`, whose last step the workers still
  // do. `done`: first completes the step of the current item. Returns the number of movements; 0:
  // all is done, or must end, or nothing can run at once.
  __device__ uint32_t find(bool ahead, uint32_t busy, bool done) {
    Patience patience;
    uint32_t looked = 0;
    for (;;) {
      if (done) {
        complete();
        patience.start_again();
        looked = 0;
        done = false;
      }
      if (left_ == 0) return 0;
      if (item_.iteration < item_.iterations) {
        if ((item_.granted || is_granted()) && (item_.arrives ? arrived() : ready())) {
          const uint32_t rounds = item_.arrives ? 0 : aim();
          if (rounds > 0 || (ahead && next_ == busy)) return rounds;
          done = true;
          continue;
        }
        if (waits_other_call_ && !ahead) {
          if (leader() == 0) report(a_.watch, KernelError::kOtherCall, waits_for_, waits_at_);
          return 0;
        }
      }
      if (own_ > 1 && change_item() && ++looked < (ahead ? kLooksAhead : own_)) continue;
      if (ahead) return 0;
      looked = 0;
      if (warp_ballot(!patience.lasts(a_.watch, waits_for_, waits_at_)) != 0) return 0;
      if (!a_.eager || !patience.looked_around()) continue;
      const int other = consumer_in_other_call(a_, items_, own_);
      if (other < 0) continue;
      if (leader() == 0) report(a_.watch, KernelError::kOtherCall, other, waits_at_);
      return 0;
    }
  }
  // False if no item can go on, as far as is known. Then the next one is looked at all the same: it
  // says whom it waits for, who may have left.
  __device__ bool change_item() {
    if (threadIdx.x == 0) keep_item();
    warp_meet();
    const uint32_t next = next_item(true);
    next_ = next < own_ ? next : next_item(false);
    item_ = items_[next_];
    warp_meet();
    return next < own_;
  }
  // The next one that is not finished, and `can`: that may have what it waits for. Each leader
  // looks at another. own_ if there is none.
  __device__ uint32_t next_item(bool can) const {
    for (uint32_t begin = 1; begin <= own_; begin += kWarp) {
      const uint32_t ahead = begin + threadIdx.x;
      const uint32_t i = next_ + ahead < own_ ? next_ + ahead : next_ + ahead - own_;
      bool may = false;
      if (ahead <= own_ && items_[i].iteration < items_[i].iterations) {
        const LaneWait wait = can && waits_ != nullptr ? waits_[i] : LaneWait{};
        may = wait.word == nullptr || load_volatile(wait.word) >= wait.value;
      }
      if (const uint32_t found = warp_ballot(may); found != 0) {
        const uint32_t first =
            next_ + begin + static_cast<uint32_t>(__ffs(static_cast<int>(found))) - 1;
        return first < own_ ? first : first - own_;
      }
    }
    return own_;
  }

  // Prepares the first movement of the step. Returns the number of movements.
  __device__ uint32_t aim() {
    if (!step_->simple) return aim_at_round(0);
    if constexpr (std::is_same_v<Type, Bytes>) {
      if (item_.packets && !a_.packets) {
        warp_meet();
        const bool failed = warp_ballot(!move_small_message(a_, items_[next_])) != 0;
        if (failed && leader() == 0) shared_.stopped = true;
        return 0;
      }
    }
    LaneMovement& m = next_movement();
    const uint32_t sources = step_->sources;
    const LaneLength& length = item_.lengths[item_.step];
    const uint64_t elements = item_.iteration < length.full    ? slice()
                              : item_.iteration == length.full ? length.rest
                                                               : 0;
    const bool aligned = warp_ballot(!aligned_) == 0;
    // The first leader has the first operand, which is the only source then.
    const uint32_t skipped = step_->skips && warp_get(end_.kind, 0) == LaneEnd::kStraight ? 1 : 0;
    // Lent destinations are the last ones.
    const uint32_t lent = a_.lends ? lent_destinations() : 0;
    const uint32_t destinations = step_->destinations - skipped - lent;
    if (threadIdx.x < sources + step_->destinations) {
      std::byte* at = item_.at[step_->first_operand + threadIdx.x];
      if (threadIdx.x < sources)
        shared_.sources[turn_][threadIdx.x] = at;
      else
        shared_.destinations[turn_][threadIdx.x - sources] = at;
    }
    if (threadIdx.x == 0) {
      m = simple_movement(elements, aligned, skipped, lent);
      m.sources = shared_.sources[turn_];
      m.destinations = shared_.destinations[turn_] + skipped;
    }
    if (a_.packets) return sources + destinations > 0 ? 1 : 0;
    return elements > 0 && destinations > 0 ? 1 : 0;
  }
  __device__ uint32_t aim_at_round(uint32_t round) {
    LaneMovement& m = next_movement();
    const uint32_t rounds = aim_at_chunk(a_, shared_, m, turn_, item_, *step_, round);
    if (threadIdx.x == 0) fill(m, m.elements, false);
    return rounds;
  }
  __device__ uint32_t lent_destinations() const {
    const uint32_t count = uint32_t{step_->sources} + step_->destinations;
    return static_cast<uint32_t>(
        __popc(warp_ballot(threadIdx.x < count && end_.kind == LaneEnd::kLent)));
  }
  // `skipped`, `lent`: the first and the last destinations, which are not written.
  __device__ LaneMovement simple_movement(uint64_t elements, bool aligned, uint32_t skipped,
                                          uint32_t lent) const {
    const uint32_t first = step_->first_operand;
    LaneMovement m;
    m.source_count = step_->sources;
    m.destination_count = step_->destinations - skipped - lent;
    m.sources = item_.at + first;
    m.destinations = item_.at + first + step_->sources + skipped;
    m.source_ends = item_.ends + first;
    m.destination_ends = m.source_ends + step_->sources;
    m.scaled = item_.lengths[item_.step].scaled;
    m.operands = nullptr;
    m.losses = nullptr;
    fill(m, elements, aligned);
    return m;
  }
  __device__ uint64_t slice() const { return (item_.lane->own ? item_.lane->data : a_.data).slice; }
  __device__ void fill(LaneMovement& m, uint64_t elements, bool aligned) const {
    m.divide_by = step_->completes ? a_.reduction.divide_by : 0;
    m.scalars.bits = a_.reduction.scalar_bits;
    m.aligned = aligned;
    m.op = a_.reduction.op;
    m.elements = std::is_same_v<Type, Bytes> ? elements * a_.element : elements;
    m.call = item_.call;
  }

  // The same for a step of several chunks or many operands: a round is one chunk, to at most
  // kMostEnds destinations.
  // (Not a member: then all that the leaders know would lie in memory.)
  static __device__ __noinline__ uint32_t aim_at_chunk(const LaneArguments& a, LaneShared& shared,
                                                       LaneMovement& m, uint32_t turn,
                                                       LaneItem item, const LaneStep& step,
                                                       uint32_t round) {
    const uint32_t passes = (step.destinations + kMostEnds - 1) / kMostEnds;
    const uint32_t c = passes > 1 ? round / passes : round, pass = passes > 1 ? round % passes : 0;
    const LanePlaces places(a, item);
    const uint64_t elements = places.length_of(step, c), before = places.before(step, c);
    const uint32_t first = step.first_operand, to = first + step.sources + pass * kMostEnds;
    const auto* operands = item.lane->at<LaneOperand>(item.lane->operands_at);
    const auto ahead = [&](uint32_t operand) {
      const uint8_t codec = operands[operand].codec;
      return codec == 0 ? before : places.before(step, c, codec);
    };
    const bool skips = step.skips && item.ends[first].kind == LaneEnd::kStraight && pass == 0;
    uint32_t count = step.destinations - pass * kMostEnds;
    if (count > kMostEnds) count = kMostEnds;
    for (uint32_t i = threadIdx.x; i < step.sources; i += kWarp) {
      shared.sources[turn][i] = places.of_chunk(first + i, c, ahead(first + i));
      shared.source_ends[i] = item.ends[first + i];
    }
    for (uint32_t i = threadIdx.x; i < count; i += kWarp) {
      shared.destinations[turn][i] = places.of_chunk(to + i, c, ahead(to + i));
      shared.destination_ends[i] = item.ends[to + i];
    }
    if (threadIdx.x == 0) {
      m.sources = shared.sources[turn];
      m.destinations = shared.destinations[turn] + (skips ? 1 : 0);
      m.source_ends = shared.source_ends;
      m.destination_ends = shared.destination_ends + (skips ? 1 : 0);
      m.source_count = step.sources;
      m.destination_count = count - (skips ? 1 : 0);
      m.scaled = item.lengths[item.step].scaled;
      m.elements = step.count > 0 && (m.destination_count > 0 || a.packets) ? elements : 0;
      m.operands = step.coded ? operands + first : nullptr;
      m.losses = step.coded ? places.losses(step, c) : nullptr;
    }
    if (step.count == 0) return a.packets ? (passes == 0 ? 1 : passes) : 0;
    return static_cast<uint32_t>(step.count) * (passes == 0 ? 1 : passes);
  }

  LaneShared& shared_;
  uint32_t turn_ = 0;  // of LaneShared::sources; the leaders' only
};

}  // namespace weft::cuda
