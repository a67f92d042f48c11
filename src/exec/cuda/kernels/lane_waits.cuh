// What a lane's next step waits for: that consumers have entered the call, messages, room for
// messages, and steps of other lanes. One warp looks, one thread per dependency and operand.
#pragma once

#include "src/exec/cuda/kernels/far_messages.cuh"
#include "src/exec/cuda/kernels/lane_items.cuh"

namespace weft::cuda {

class LaneWaits : protected LaneItems {
 protected:
  using LaneItems::LaneItems;

  // A packet may arrive in two halves, so a mismatch counts only if it persists.
  static constexpr uint32_t kMostForeign = 4096;

  // The number of a thread in its warp. A block has one warp of leaders, unless each leads.
  static __device__ uint32_t leader() { return threadIdx.x % kWarp; }
  // While a single item waits, there is nothing else to lead: all threads move data.
  __device__ bool all_work() const { return own_ == 1; }

  // How far the current item has come. Other threads may look at the rest of it meanwhile.
  __device__ void keep_item() const {
    LaneItem& kept = items_[next_];
    kept.step = item_.step;
    kept.iteration = item_.iteration;
    kept.granted = item_.granted;
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

  // Whether all consumers of the item have entered the call, or for eager messages the one before.
  // Then it knows where straight messages go.
  __device__ bool is_granted() {
    const LaneHead& lane = *item_.lane;
    const LanePlaces places(a_, item_);
    const auto* ports = lane.at<LanePort>(lane.sends_at);
    bool mine = true, other_call = false;
    int waits = -1;
    // The last leader has the fewest ports. It asks for what the NICs are done with at once: that
    // and a grant may each take a round trip to the host's memory. (No acquire: what follows writes
    // the outbox, and does not begin before the value is known.)
    const bool asks = a_.sent != nullptr && lane.sends > 0 && leader() == kWarp - 1;
    uint64_t sent = 0;
    uint32_t settled = 0;
    if (asks) {
      sent = load_volatile(a_.sent);
      settled = load_volatile(&a_.counters->settled);
    }
    for (uint32_t s = leader(); s < lane.sends; s += kWarp) {
      const bool eager = places.is_eager(ports[s]);
      const Packet granted = load_packet(places.grant(ports[s]));
      if (eager && lane.own) {  // one place, and no other call
        if (static_cast<int32_t>(granted.flag0 - (item_.call - 1)) >= 0) continue;
        mine = false;
        waits = ports[s].peer;
        continue;
      }
      if (eager && load_packet(places.grant(ports[s], item_.call - 1)).flag0 == item_.call - 1)
        continue;
      if (is_grant(a_, item_.call, granted, eager)) continue;
      mine = false;
      waits = ports[s].peer;
      if (granted.flag0 == item_.call && ++foreign_ > kMostForeign) other_call = true;
    }
    if (asks) mine = mine && static_cast<int32_t>(static_cast<uint32_t>(sent) - settled) >= 0;
    if (!all_agree(mine, waits, other_call, {})) return false;
    if (!item_.packets) places.settle(leader(), kWarp);
    item_.granted = true;
    warp_meet();
    return true;
  }
  // Whether a port's consumer has granted the call. It may have left an eager call, too.
  static __device__ bool is_grant(const LaneArguments& a, uint32_t call, const Packet& granted,
                                  bool eager) {
    if (granted.flag0 == call && granted.flag1 == (call ^ a.signature)) return true;
    return eager && static_cast<int32_t>(granted.flag0 - call) > 0;
  }
  // The leaders, at the end of an eager call: wait until its consumers have entered it. (Not
  // earlier: grants are on the way while the data is. Not a member, see below.) A message of
  // send/recv is no call of all ranks: the next one to the same rank waits.
  static __device__ __noinline__ void see_grants(const LaneArguments& a, const LaneItem* items,
                                                 uint32_t own) {
    for (uint32_t i = 0; i < own; i++) {
      const LaneItem& item = items[i];
      const LanePlaces places(a, item);
      const auto* ports = item.lane->at<LanePort>(item.lane->sends_at);
      for (uint32_t s = leader(); s < item.lane->sends; s += kWarp) {
        if (!places.is_eager(ports[s])) continue;
        const int peer = ports[s].peer;
        uint32_t foreign = 0;
        const auto granted = [&] {
          const Packet found = load_packet(places.grant(ports[s]));
          return is_grant(a, item.call, found, true) ||
                 (found.flag0 == item.call && ++foreign > kMostForeign);
        };
        if (!wait_until(a.watch, peer, granted, FarMessages{a})) return;
        if (foreign > kMostForeign) return report(a.watch, KernelError::kOtherCall, peer);
      }
    }
  }
  // The leaders, now and then while an eager call waits: a consumer that is in another call, so
  // that its messages would not count. -1: none.
  static __device__ __noinline__ int consumer_in_other_call(const LaneArguments& a,
                                                            const LaneItem* items, uint32_t own) {
    int who = -1;
    for (uint32_t i = 0; i < own; i++) {
      const LaneItem& item = items[i];
      const LanePlaces places(a, item);
      const auto* ports = item.lane->at<LanePort>(item.lane->sends_at);
      for (uint32_t s = leader(); s < item.lane->sends; s += kWarp) {
        if (is_in_other_call(a, places, ports[s])) who = ports[s].peer;
      }
    }
    const uint32_t found = warp_ballot(who >= 0);
    return found == 0 ? -1
                      : warp_get(who, static_cast<uint32_t>(__ffs(static_cast<int>(found))) - 1);
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
          if (!here && !item_.packets)
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
    if (!item_.packets) {
      const uint64_t seen = load_acquire(end_.word, a_.system);
      return a_.eager && end_.posted && !item_.lane->own ? has_eager(seen, end_.next)
                                                         : seen >= end_.next;
    }
    // Who has one item waits for the packets themselves.
    if (alone_) return true;
    const std::byte* at = item_.at[step_->first_operand + i];
    return load_packet(reinterpret_cast<const Packet*>(at)).flag0 == item_.call;
  }
  __device__ bool has_room() const {
    if (end_.free || static_cast<uint32_t>(end_.next) <= a_.slots) return true;
    return load_acquire(end_.word, a_.system) >= end_.next - a_.slots;
  }

  // The leaders' only. Equal in all of them, but for the operand that each has.
  uint32_t next_ = 0;
  LaneItem item_;
  const LaneStep* step_ = nullptr;
  LaneEnd end_;
  bool aligned_ = false;
  bool alone_ = false;                  // only one item can go on
  int waits_for_ = -1, waits_at_ = -1;  // a rank, and the step that needs it
  uint32_t foreign_ = 0;
  bool waits_other_call_ = false;
};

}  // namespace weft::cuda
