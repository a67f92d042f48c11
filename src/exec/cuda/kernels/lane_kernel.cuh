// Runs lanes. First all threads of a block resolve the operands of its items. Then the first warp
// leads: it looks for an item whose next step can run, one thread per dependency and operand. All
// warps move the step's data, and the leaders tell the peers. In a block with several items the
// leaders do not move data: they tell the peers of the step before, and look for the next one. A
// step that has no data to move needs only the leaders. A single warp takes microseconds for a few
// hundred instructions, so all that can be known before is.
#pragma once

#include "src/exec/cuda/kernels/lane_codecs.cuh"
#include "src/exec/cuda/kernels/lane_items.cuh"
#include "src/exec/cuda/kernels/lane_packets.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"

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
class LaneRunner : private LaneItems {
 public:
  __device__ LaneRunner(const LaneArguments& a, LaneShared& shared, LaneItem* items,
                        LaneWait* waits)
      : LaneItems(a, items, waits), shared_(shared) {}

  // `room`: for the block's lanes, if they fit into shared memory.
  __device__ void run(std::byte* room) {
    if (threadIdx.x == 0) shared_.finished = shared_.stopped = false;
    take_items(room);
    if (leads()) enter();
    if (a_.packets && own_ == 1) return run_packets();
    if (a_.warps) return run_warps();
    if (leads())
      lead();
    else
      work();
    leave();
  }

 private:
  // The number of a thread in its warp. A block has one warp of leaders, unless each leads.
  static __device__ uint32_t leader() { return threadIdx.x % kWarp; }
  // The threads that move data. While a single item waits, there is nothing else to lead.
  __device__ bool all_work() const { return own_ == 1; }
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
      if (!move_packets<Type, Op>(a_, m, workers())) shared_.stopped = true;
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
  }

  // A block with a single item and small messages needs no leaders: nothing else could be done
  // while it waits, so all threads go through the steps and wait for their own packets.
  __device__ void run_packets() {
    alone_ = true;
    if (leads() && !wait_for([&] { return is_granted(); })) shared_.stopped = true;
    __syncthreads();
    item_ = items_[0];
    const auto* steps = item_.lane->at<LaneStep>(sizeof(LaneHead));
    const uint32_t count = shared_.stopped || item_.iteration > 0 ? 0 : item_.lane->steps;
    if (item_.lane->plain) {
      pass_packets(steps, count);
      __syncthreads();  // the first thread that ends lets the next kernel start
      return leave();
    }
    for (item_.step = 0; item_.step < count; item_.step++) {
      step_ = &steps[item_.step];
      if (step_->dependencies > 0) {
        if (leads() && !wait_for([&] { return ready(); })) shared_.stopped = true;
        __syncthreads();
        if (shared_.stopped) break;
      }
      const uint32_t rounds = step_->simple ? 1 : packet_rounds();
      for (uint32_t round = 0; round < rounds; round++) {
        LaneMovement m;
        if (step_->simple) {
          m = simple_movement(item_.lengths[item_.step].rest, false, 0, 0);
        } else {
          if (leads()) aim_at_round(round);
          __syncthreads();
          m = next_movement();
        }
        const bool moved = m.source_count + m.destination_count == 0 ||
                           move_packets<Type, Op>(a_, m, all_threads());
        if (__syncthreads_or(!moved)) return leave();
      }
      if (step_->counted && threadIdx.x == 0) {
        fence(a_.system);
        tell_progress();
      }
    }
    leave();
  }
  // Small messages in a block with several items: a warp has every so many-th item, leads it and
  // moves its data. All steps are simple.
  __device__ void run_warps() {
    next_ = threadIdx.x / kWarp;
    const bool alone = next_ + blockDim.x / kWarp >= own_;  // with its first item
    if (next_ < own_) {
      if (alone)
        run_item();
      else
        run_items();
    }
    __syncthreads();
    leave();
  }
  static __device__ BlockTeam warp_threads() { return {leader(), kWarp}; }
  __device__ bool move_step() {
    return step_->sources + step_->destinations == 0 ||
           move_packets<Type, Op>(
               a_, simple_movement(item_.lengths[item_.step].rest, false, 0, 0), warp_threads());
  }
  // A warp that has one item waits for its packets themselves.
  __device__ void run_item() {
    alone_ = true;
    item_ = items_[next_];
    if (item_.iteration == item_.iterations || !wait_for([&] { return is_granted(); })) return;
    const auto* steps = item_.lane->at<LaneStep>(sizeof(LaneHead));
    for (item_.step = 0; item_.step < item_.lane->steps; item_.step++) {
      step_ = &steps[item_.step];
      if (step_->dependencies > 0 && !wait_for([&] { return ready(); })) return;
      if (warp_ballot(!move_step()) != 0) return;
      if (step_->counted) tell_step();
    }
  }
  // With several items it takes the one that can go on. Each thread has the patience for another
  // item, because they wait for different ranks.
  __device__ void run_items() {
    const uint32_t first = next_, warps = blockDim.x / kWarp;
    Patience patience;
    for (bool left = true; left;) {
      left = false;
      for (next_ = first; next_ < own_; next_ += warps) {
        const bool mine = leader() == next_ / warps % kWarp;
        item_ = items_[next_];
        if (item_.iteration == item_.iterations) continue;
        left = true;
        while ((item_.granted || is_granted()) && ready()) {
          if (warp_ballot(!move_step()) != 0) return;
          if (step_->counted) tell_step();
          if (mine) patience.start_again();
          if (++item_.step < item_.lane->steps) continue;
          item_.iteration = item_.iterations;
          break;
        }
        if (leader() == 0) items_[next_] = item_;
        warp_meet();
        if (item_.iteration == item_.iterations) continue;
        if (waits_other_call_) {
          if (leader() == 0) report(a_.watch, KernelError::kOtherCall, waits_for_, waits_at_);
          return;
        }
        if (warp_ballot(mine && !patience.lasts(a_.watch, waits_for_, waits_at_)) != 0) return;
      }
    }
  }
  __device__ void tell_step() const {
    warp_meet();
    if (leader() != 0) return;
    fence(a_.system);
    tell_progress();
  }

  // The steps of a rank's only lane. A thread has the same words of a chunk in all steps, so
  // threads do not meet.
  __device__ void pass_packets(const LaneStep* steps, uint32_t count) {
    for (item_.step = 0; item_.step < count; item_.step++) {
      step_ = &steps[item_.step];
      const uint64_t elements = item_.lengths[item_.step].rest;
      if (step_->sources == 1 && (!kSums<Op> || item_.lengths[item_.step].scaled == 0)) {
        if (!pass_words(elements * a_.element)) return;
      } else if (step_->sources + step_->destinations > 0 &&
                 !move_packets<Type, Op>(a_, simple_movement(elements, false, 0, 0),
                                         all_threads())) {
        return;
      }
    }
  }
  // A step with one source, as it is.
  __device__ bool pass_words(uint64_t bytes) const {
    const uint32_t first = step_->first_operand, call = item_.call, mixed = call ^ a_.signature;
    const LaneEnd* ends = item_.ends + first;
    std::byte* const* at = item_.at + first;
    const std::byte* source = at[0];
    const bool message = ends[0].kind == LaneEnd::kPacket;
    const int peer = ends[0].peer;
    const uint32_t destinations = step_->destinations;
    const uint64_t words = bytes == 0 ? 1 : (bytes + 7) / 8;
    for (uint64_t w = threadIdx.x; w < words; w += blockDim.x) {
      const uint64_t left = bytes > w * 8 ? bytes - w * 8 : 0;
      uint64_t word = 0;
      if (message) {
        const auto* packet = reinterpret_cast<const Packet*>(source) + w;
        Packet read;
        if (!wait_until(a_.watch, peer, [&] {
              read = load_packet(packet);
              return read.flag0 == call && read.flag1 == mixed;
            }))
          return false;
        word = static_cast<uint64_t>(read.data1) << 32 | read.data0;
      } else if (left > 0) {
        word = load_word(source + w * 8, left);
      }
      for (uint32_t k = 1; k <= destinations; k++) {
        if (ends[k].kind == LaneEnd::kPacket) {
          store_packet(reinterpret_cast<Packet*>(at[k]) + w, static_cast<uint32_t>(word),
                       static_cast<uint32_t>(word >> 32), call, mixed);
        } else if (left > 0) {
          store_word(at[k] + w * 8, left, word);
        }
      }
    }
    return true;
  }
  __device__ uint32_t packet_rounds() const {
    const uint32_t passes = (step_->destinations + kMostEnds - 1) / kMostEnds;
    return (step_->count == 0 ? 1 : step_->count) * (passes == 0 ? 1 : passes);
  }
  template <typename Done>
  __device__ bool wait_for(Done done) {
    Patience patience;
    while (!done()) {
      if (waits_other_call_) {
        if (leader() == 0) report(a_.watch, KernelError::kOtherCall, waits_for_, waits_at_);
        return false;
      }
      if (warp_ballot(!patience.lasts(a_.watch, waits_for_, waits_at_)) != 0) return false;
    }
    return true;
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
        if ((item_.granted || is_granted()) && (item_.arrives ? arrived() : can_run())) {
          const uint32_t rounds = item_.arrives ? 0 : all_work() ? rounds_ : aim();
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
    }
  }
  // False if no item can go on, as far as is known. Then the next one is looked at all the same: it
  // says whom it waits for, who may have left.
  __device__ bool change_item() {
    if (threadIdx.x == 0) items_[next_] = item_;
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

  // Whether all consumers of the item have entered the call. Then it knows where straight messages
  // go.
  __device__ bool is_granted() {
    const LaneHead& lane = *item_.lane;
    const LanePlaces places(a_, item_);
    const auto* ports = lane.at<LanePort>(lane.sends_at);
    bool mine = true, other_call = false;
    int waits = -1;
    for (uint32_t s = leader(); s < lane.sends; s += kWarp) {
      const Packet granted = load_packet(places.grant(ports[s]));
      if (granted.flag0 == item_.call && granted.flag1 == (item_.call ^ a_.signature)) continue;
      mine = false;
      waits = ports[s].peer;
      // A packet may arrive in two halves, so a mismatch counts only if it persists.
      if (granted.flag0 == item_.call && ++foreign_ > 4096) other_call = true;
    }
    // The last leader has the fewest ports.
    if (a_.sent != nullptr && lane.sends > 0 && leader() == kWarp - 1)
      mine = mine && static_cast<int32_t>(static_cast<uint32_t>(load_acquire_system(a_.sent)) -
                                          load_volatile(&a_.counters->settled)) >= 0;
    if (!all_agree(mine, waits, other_call, {})) return false;
    if (!a_.packets) places.settle(leader(), kWarp);
    item_.granted = true;
    warp_meet();
    return true;
  }
  // Whether all leaders say yes. If not, notes whom and what the first of them waits for.
  __device__ bool all_agree(bool mine, int waits, bool other_call, const LaneWait& wait) {
    const uint32_t blocked = warp_ballot(!mine);
    if (blocked == 0) return true;
    const uint32_t first = static_cast<uint32_t>(__ffs(static_cast<int>(blocked))) - 1;
    if (leader() == first && waits_ != nullptr) waits_[next_] = wait;
    waits_for_ = warp_get(waits, first);
    waits_at_ = static_cast<int>(item_.step);
    waits_other_call_ = warp_ballot(other_call) != 0;
    return false;
  }

  // Whether the last messages of an item that only arrives have arrived.
  __device__ bool arrived() {
    const LaneHead& lane = *item_.lane;
    const LanePlaces places(a_, item_);
    const auto* ports = lane.at<LanePort>(lane.receives_at);
    bool mine = true;
    int waits = -1;
    LaneWait wait;
    uint32_t step = 0;
    for (uint32_t r = threadIdx.x; r < lane.receives; r += kWarp) {
      const uint64_t seen = load_acquire(places.tail(ports[r]), a_.system);
      if (seen >= places.last(ports[r])) continue;
      if (seen >= call_word(item_.call, 0)) step = static_cast<uint32_t>(seen) % lane.steps;
      mine = false;
      waits = ports[r].peer;
      wait = {places.tail(ports[r]), places.last(ports[r])};
    }
    if (all_agree(mine, waits, false, wait)) return true;
    // With several ports the step is not known.
    waits_at_ = lane.receives == 1 ? static_cast<int>(warp_get(step, 0)) : -1;
    return false;
  }

  // A block with one item prepares its step before that can run. So the data moves as soon as the
  // last word has come.
  __device__ bool can_run() {
    if (!all_work()) return ready();
    if (!prepared_) {
      look();
      rounds_ = aim();
      prepared_ = true;
    }
    if (!looks_at_all_) return ready();
    const bool here =
        awaited_.word == nullptr || load_acquire(awaited_.word, a_.system) >= awaited_.value;
    return all_agree(here, awaited_peer_, false, awaited_);
  }
  // What each leader waits for before the step: a message, room or another step.
  __device__ void look() {
    step_ = item_.lane->at<LaneStep>(sizeof(LaneHead)) + item_.step;
    const uint32_t count = uint32_t{step_->sources} + step_->destinations,
                   all = count + step_->dependencies, i = leader();
    aligned_ = true;
    awaited_ = {};
    awaited_peer_ = -1;
    looks_at_all_ = all <= kWarp;
    if (i >= count) {
      if (i < all && looks_at_all_)
        awaited_ = end_of(item_.lane->at<LaneDependency>(
            item_.lane->dependencies_at)[step_->first_dependency + i - count]);
      return;
    }
    end_ = item_.ends[step_->first_operand + i];
    aligned_ = end_.aligned;
    if (end_.kind == LaneEnd::kMemory || end_.word == nullptr) return;
    const bool waits = i < step_->sources || needs_room();
    if (!waits) return;
    awaited_ = {end_.word, i < step_->sources ? end_.next : end_.next - a_.slots};
    awaited_peer_ = end_.peer;
  }

  // Whether the dependencies of the item's step are complete, its messages have arrived and its
  // ports have room.
  __device__ bool ready() {
    step_ = item_.lane->at<LaneStep>(sizeof(LaneHead)) + item_.step;
    const uint32_t count = uint32_t{step_->sources} + step_->destinations,
                   all = count + step_->dependencies;
    const LaneEnd* ends = item_.ends + step_->first_operand;
    bool mine = true;
    int waits = -1;
    LaneWait wait;
    aligned_ = true;
    for (uint32_t i = leader(); i < all; i += kWarp) {
      bool here = true;
      if (i >= count) {
        const LaneWait other = end_of(item_.lane->at<LaneDependency>(
            item_.lane->dependencies_at)[step_->first_dependency + i - count]);
        here = load_acquire(other.word, false) >= other.value;
        if (!here) wait = other;
      } else {
        end_ = ends[i];
        aligned_ = aligned_ && end_.aligned;
        if (end_.kind != LaneEnd::kMemory && end_.word != nullptr) {
          here = i < step_->sources ? has_arrived(i) : has_room();
          if (!here) waits = end_.peer;
          if (!here && !a_.packets)
            wait = {end_.word, i < step_->sources ? end_.next : end_.next - a_.slots};
        }
      }
      mine = mine && here;
    }
    return all_agree(mine, waits, false, wait);
  }

  // When a step of another lane is complete.
  __device__ LaneWait end_of(const LaneDependency& d) const {
    const uint64_t steps = uint64_t{item_.iteration} * d.steps + d.step + 1;
    return {&a_.progress[item_.instance * a_.lane_count + d.lane], call_word(item_.call, steps)};
  }
  __device__ bool has_arrived(uint32_t i) const {
    if (!a_.packets) return load_acquire(end_.word, a_.system) >= end_.next;
    // Who has one item waits for the packets themselves.
    if (alone_) return true;
    const std::byte* at = item_.at[step_->first_operand + i];
    return load_packet(reinterpret_cast<const Packet*>(at)).flag0 == item_.call;
  }
  // The first messages of a call always have room.
  __device__ bool needs_room() const {
    return !end_.free && static_cast<uint32_t>(end_.next) > a_.slots;
  }
  __device__ bool has_room() const {
    if (!needs_room()) return true;
    return load_acquire(end_.word, a_.system) >= end_.next - a_.slots;
  }

  // Prepares the first movement of the step. Returns the number of movements.
  __device__ uint32_t aim() {
    if (!step_->simple) return aim_at_round(0);
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
      m.elements = m.destination_count > 0 || a.packets ? elements : 0;
      m.operands = step.coded ? operands + first : nullptr;
      m.losses = step.coded ? places.losses(step, c) : nullptr;
    }
    if (step.count == 0) return a.packets ? (passes == 0 ? 1 : passes) : 0;
    return static_cast<uint32_t>(step.count) * (passes == 0 ? 1 : passes);
  }

  // What a leader tells when the data of a step has been moved: that a slot is free, that a message
  // has come, or, the first leader, that the step is complete.
  struct Told {
    uint64_t *word = nullptr, *progress = nullptr;
    uint64_t value = 0, steps = 0;
    bool fences = false;  // equal in all
  };
  // Whether the step can be noted: every leader has an operand, and none is told of by a post.
  __device__ bool can_look_ahead() const {
    return !all_work() && step_->simple &&
           warp_ballot(threadIdx.x < step_->sources + step_->destinations && end_.posted) == 0;
  }
  // Notes what is to be told of the step, and goes on to the next one.
  __device__ Told note_step() {
    Told told;
    const uint32_t i = threadIdx.x;
    if (!a_.packets && i < uint32_t{step_->sources} + step_->destinations) {
      if (is_told(i)) {
        told.word = end_.told;
        told.value = end_.next;
      }
      const uint32_t operand = step_->first_operand + i;
      go_on(item_.ends[operand], item_.at[operand]);
    }
    told.fences = step_->counted || (step_->sends && !a_.packets);
    if (step_->counted && i == 0) {
      told.progress = progress();
      told.steps = steps_done();
    }
    warp_meet();
    advance();
    return told;
  }
  __device__ void tell(const Told& told) const {
    if (told.fences) fence(a_.system);
    if (told.word != nullptr) store_relaxed(told.word, told.value, a_.system);
    if (told.progress != nullptr) store_relaxed(told.progress, told.steps, false);
  }

  // The step's data has been moved. Gives slots back, tells consumers, and counts the step.
  __device__ void complete() {
    prepared_ = false;
    if (item_.arrives) return complete_item();
    const uint32_t count = uint32_t{step_->sources} + step_->destinations;
    if (!a_.packets) {
      if (step_->sends || step_->counted) fence(a_.system);
      for (uint32_t i = threadIdx.x; i < count; i += kWarp) {
        LaneEnd& end = item_.ends[step_->first_operand + i];
        if (!step_->simple) end_ = end;
        if (is_told(i)) tell(i);
        go_on(end, item_.at[step_->first_operand + i]);
      }
    } else if (step_->counted) {
      fence(a_.system);
    }
    if (step_->counted && threadIdx.x == 0) tell_progress();
    warp_meet();
    advance();
  }
  __device__ void advance() {
    if (++item_.step < item_.lane->steps) return;
    item_.step = 0;
    if (++item_.iteration < item_.iterations) return;
    complete_item();
  }
  __device__ void complete_item() {
    item_.iteration = item_.iterations;
    if (threadIdx.x == 0 && item_.lane->own) item_.lane->counter[item_.instance] = item_.call;
    left_--;
  }
  // Whether the other end waits for operand i, which is in end_. A producer need not wait for the
  // room of the last messages.
  __device__ bool is_told(uint32_t i) const {
    if (end_.word == nullptr || i >= step_->sources) return end_.word != nullptr;
    return !end_.free &&
           static_cast<uint32_t>(end_.next) + a_.slots <= item_.iterations * end_.per_iteration;
  }
  // Tells the other end of operand i's message, which is in end_.
  __device__ void tell(uint32_t i) const {
    if (!end_.posted) return store_relaxed(end_.told, end_.next, a_.system);
    const LaneHead& lane = *item_.lane;
    const uint32_t number = step_->first_operand + i;
    const auto& operand = lane.at<LaneOperand>(lane.operands_at)[number];
    const auto& port =
        lane.at<LanePort>(operand.receives ? lane.receives_at : lane.sends_at)[operand.port];
    const LanePlaces places(a_, item_);
    const uint64_t bytes =
        places.before(*step_, static_cast<uint32_t>(step_->count), operand.codec);
    if (!operand.receives && bytes > 0) atomicAdd(&a_.counters->posted, 1);
    send_post(a_.watch, *port.post, places.post_of(operand, port, end_, bytes, item_.at[number]),
              port.peer);
  }
  __device__ void tell_progress() const { store_relaxed(progress(), steps_done(), false); }
  __device__ uint64_t* progress() const {
    return &a_.progress[item_.instance * a_.lane_count + item_.number];
  }
  __device__ uint64_t steps_done() const {
    return call_word(item_.call, uint64_t{item_.iteration} * item_.lane->steps + item_.step + 1);
  }
  // To the operand of the next iteration.
  __device__ void go_on(LaneEnd& end, std::byte*& at) const {
    if (item_.iterations == 1) return;
    end.next = end_.next + end_.per_iteration;
    if (end_.place != kPrivate) end.place = end_.place + end_.advance;
    const bool in_slot = end_.kind == LaneEnd::kSlot;
    if (!in_slot) at += end_.advance;
    if (!in_slot && end_.kind != LaneEnd::kLent) return;
    uint32_t slot = uint32_t{end_.slot} + end_.slot_step;
    if (slot >= a_.slots) slot -= a_.slots;
    end.slot = static_cast<uint16_t>(slot);
    if (in_slot)
      at += (static_cast<int64_t>(slot) - end_.slot) * static_cast<int64_t>(a_.slot_bytes);
  }

  // The caller may change its buffers when the kernel has ended.
  __device__ void wait_for_nics() const {
    Patience patience;
    const uint32_t posted = load_volatile(&a_.counters->posted);
    while (static_cast<int32_t>(static_cast<uint32_t>(load_acquire_system(a_.sent)) - posted) < 0)
      if (!patience.lasts(a_.watch, -1)) return;
  }
  // The last block of the rank counts the call. The end of the kernel makes that visible.
  __device__ void leave() {
    if (threadIdx.x != 0) return;
    const bool posts = a_.sent != nullptr;
    if (posts) fence(false);
    if (gridDim.x > 1) {
      if (atomicAdd(&a_.counters->leaving, 1) != gridDim.x - 1) return;
      a_.counters->leaving = 0;
    }
    if (a_.lends) wait_for_nics();
    if (posts) a_.counters->settled = load_volatile(&a_.counters->posted);
    if (a_.counts) a_.counters->call = call_;
  }

  LaneShared& shared_;
  // The leaders' only. Equal in all of them, but for the operand that each has.
  uint32_t next_ = 0;
  uint32_t turn_ = 0;  // of LaneShared::sources
  LaneItem item_;
  const LaneStep* step_ = nullptr;
  LaneEnd end_;
  bool aligned_ = false;
  bool alone_ = false;  // only one item can go on
  // See can_run().
  bool prepared_ = false, looks_at_all_ = false;
  uint32_t rounds_ = 0;
  LaneWait awaited_;
  int awaited_peer_ = -1;
  int waits_for_ = -1, waits_at_ = -1;  // a rank, and the step that needs it
  uint32_t foreign_ = 0;
  bool waits_other_call_ = false;
};

#ifdef __CUDACC__
template <typename Type, typename Op>
__device__ __noinline__ void run_lanes(const LaneArguments& a, std::byte* room) {
  __shared__ LaneShared shared;
  auto* items = reinterpret_cast<LaneItem*>(room);
  const uint32_t most = (a.items + gridDim.x - 1) / gridDim.x;
  auto* waits = reinterpret_cast<LaneWait*>(items + most);
  LaneRunner<Type, Op>(a, shared, items, a.has_waits ? waits : nullptr)
      .run(reinterpret_cast<std::byte*>(a.has_waits ? waits + most : waits));
}

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    lane_kernel(const __grid_constant__ LaneArguments arguments) {
  extern __shared__ __align__(16) std::byte room[];
  __shared__ LaneArguments a;
  Parameters parameters;
  parameters.load(&arguments, sizeof arguments);
  if (arguments.counters == nullptr) return;  // only launched to be loaded
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
    a.lanes = copy.bytes + sizeof(MessageArguments);
  }
  __syncthreads();
  wait_for_predecessor();
  run_lanes<Bytes, Sum>(a, room);
  let_successor_start();
}
#endif

}  // namespace weft::cuda
