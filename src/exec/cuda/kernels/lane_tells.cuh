// What the leaders of a lane tell when the data of a step has been moved: peers, other lanes, and
// at the end the next call.
#pragma once

#include "src/exec/cuda/kernels/lane_posts.cuh"
#include "src/exec/cuda/kernels/lane_waits.cuh"

namespace weft::cuda {

class LaneTells : protected LaneWaits {
 protected:
  using LaneWaits::LaneWaits;

  // What a leader tells when the data of a step has been moved: that a slot is free, that a message
  // has come, or, the first leader, that the step is complete.
  struct Told {
    uint64_t *word = nullptr, *progress = nullptr;
    uint64_t value = 0, steps = 0;
    bool fences = false, system = false;  // equal in all
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
    if (!item_.packets && i < uint32_t{step_->sources} + step_->destinations) {
      if (is_told(i)) {
        told.word = end_.told;
        told.value = end_.next;
      }
      const uint32_t operand = step_->first_operand + i;
      go_on(item_.ends[operand], item_.at[operand]);
    }
    told.system = step_->sends && !item_.packets;
    told.fences = step_->counted || told.system;
    if (step_->counted && i == 0) {
      told.progress = progress();
      told.steps = steps_done();
    }
    warp_meet();
    advance();
    return told;
  }
  __device__ void tell(const Told& told) const {
    if (told.fences) fence(told.system && a_.system);
    if (told.word != nullptr) store_relaxed(told.word, told.value, a_.system);
    if (told.progress != nullptr) store_relaxed(told.progress, told.steps, false);
  }

  // The step's data has been moved. Gives slots back, tells consumers, and counts the step.
  __device__ void complete() {
    warp_meet();  // one leader each has seen the steps that this one follows
    if (item_.arrives) return complete_item();
    const uint32_t count = uint32_t{step_->sources} + step_->destinations;
    if (!item_.packets) {
      if (step_->sends || step_->counted) fence(step_->sends && a_.system);
      for (uint32_t i = threadIdx.x; i < count; i += kWarp) {
        LaneEnd& end = item_.ends[step_->first_operand + i];
        if (!step_->simple) end_ = end;
        if (is_told(i)) tell(i);
        go_on(end, item_.at[step_->first_operand + i]);
      }
    } else {
      if (a_.eager) post_packets(a_, items_[next_], *step_, leader(), kWarp);
      if (step_->counted) fence(false);
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
  // Thread `thread` of the first `threads`: the proxy carries the packets of a step to each
  // consumer on another host. The post may come before packets of other threads, so it must not
  // wait for what comes after it. It does not if all threads have met since they moved the step's
  // words, or if it is the first thread's: that has a word of every message, so what others wait
  // for has come. (Not inlined, and not of item_: what leaders know would lie in memory.)
  static __device__ __noinline__ void post_packets(const LaneArguments& a, const LaneItem& item,
                                                   const LaneStep& step, uint32_t thread,
                                                   uint32_t threads) {
    const LanePlaces places(a, item);
    const uint64_t words = places.packets(step);
    const uint32_t first = step.first_operand + step.sources, end = first + step.destinations;
    const LaneHead& lane = *item.lane;
    for (uint32_t i = first + thread; i < end && thread < threads; i += threads) {
      if (!item.ends[i].posted) continue;
      const auto& operand = lane.at<LaneOperand>(lane.operands_at)[i];
      const auto& port = lane.at<LanePort>(lane.sends_at)[operand.port];
      atomicAdd(&a.counters->posted, 1);
      send_post(a.watch, *port.small_post,
                places.packet_post(port, item.ends[i], words, item.at[i]), port.peer);
    }
  }
  // To other lanes of this rank, on this GPU. (Peers are told by words, after a fence of their own,
  // or by packets, which need none.)
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
      at += (static_cast<int64_t>(slot) - end_.slot) *
            static_cast<int64_t>(a_.slot_bytes * item_.lane->data.wide);
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
  // The same of a step of packets, by a warp that leads itself.
  __device__ void tell_step() const {
    warp_meet();
    if (leader() != 0) return;
    fence(false);
    tell_progress();
  }
};

}  // namespace weft::cuda
