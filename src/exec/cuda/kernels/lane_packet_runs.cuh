// Small messages: how lanes run without leaders, because nothing else could be done while they
// wait. Threads wait for their own packets.
#pragma once

#include "src/exec/cuda/kernels/lane_runner.cuh"

namespace weft::cuda {

// A block with a single item and small messages needs no leaders: nothing else could be done
// while it waits, so all threads go through the steps and wait for their own packets.
template <typename Type, typename Op>
__device__ inline void LaneRunner<Type, Op>::run_packets() {
  alone_ = true;
  if (leads() && !wait_for([&] { return is_granted(); }) && leader() == 0) shared_.stopped = true;
  __syncthreads();
  item_ = items_[0];
  const auto* steps = item_.lane->at<LaneStep>(sizeof(LaneHead));
  const uint32_t count = shared_.stopped || item_.iteration > 0 ? 0 : item_.lane->steps;
  if (item_.lane->plain) return pass_packets(steps, count);
  __syncthreads();  // all have read whether to stop
  for (item_.step = 0; item_.step < count; item_.step++) {
    step_ = &steps[item_.step];
    if (step_->dependencies > 0) {
      if (leads() && !wait_for([&] { return ready(); }) && leader() == 0) shared_.stopped = true;
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
      const bool moved =
          m.source_count + m.destination_count == 0 || move_packets<Type, Op>(a_, m, all_threads());
      if (__syncthreads_or(!moved)) return;
    }
    if (a_.eager) post_packets(a_, items_[next_], *step_, threadIdx.x, blockDim.x);
    if (step_->counted && threadIdx.x == 0) {
      fence(false);
      tell_progress();
    }
  }
}

// Small messages in a block with several items: a warp has every so many-th item, leads it and
// moves its data. All steps are simple.
template <typename Type, typename Op>
__device__ inline void LaneRunner<Type, Op>::run_warps() {
  next_ = threadIdx.x / kWarp;
  const bool alone = next_ + blockDim.x / kWarp >= own_;  // with its first item
  if (next_ < own_) {
    if (alone)
      run_item();
    else
      run_items();
  }
}

// (They meet because the steps that it follows have been seen by one thread each.)
template <typename Type, typename Op>
__device__ inline bool LaneRunner<Type, Op>::move_step() {
  if (step_->dependencies > 0) warp_meet();
  if (step_->sources + step_->destinations == 0) return true;
  const uint64_t elements = item_.lengths[item_.step].rest;
  const bool moved =
      move_packets<Type, Op>(a_, simple_movement(elements, false, 0, 0), warp_threads());
  if (!a_.eager) return moved;
  if (warp_ballot(!moved) != 0) return false;
  post_packets(a_, items_[next_], *step_, leader(), kWarp);
  return true;
}

// A warp that has one item waits for its packets themselves. A thread has the same words of a
// chunk in all steps, of scratch memory too, so threads meet for other lanes only.
template <typename Type, typename Op>
__device__ inline void LaneRunner<Type, Op>::run_item() {
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
template <typename Type, typename Op>
__device__ inline void LaneRunner<Type, Op>::run_items() {
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
      if (leader() == 0) keep_item();
      warp_meet();
      if (item_.iteration == item_.iterations) continue;
      if (waits_other_call_) {
        if (leader() == 0) report(a_.watch, KernelError::kOtherCall, waits_for_, waits_at_);
        return;
      }
      bool stops = mine && !patience.lasts(a_.watch, waits_for_, waits_at_);
      if (a_.eager && mine && !stops && patience.looked_around()) stops = reports_other_call(a_);
      if (warp_ballot(stops) != 0) return;
    }
  }
}

// The steps of a rank's only lane. A thread has the same words of a chunk in all steps, so
// threads do not meet.
template <typename Type, typename Op>
__device__ inline void LaneRunner<Type, Op>::pass_packets(const LaneStep* steps, uint32_t count) {
  for (item_.step = 0; item_.step < count; item_.step++) {
    step_ = &steps[item_.step];
    const uint64_t elements = item_.lengths[item_.step].rest;
    if (step_->sources == 1 && (!kSums<Op> || item_.lengths[item_.step].scaled == 0)) {
      if (!pass_words(elements * a_.element)) return;
    } else if (step_->sources + step_->destinations > 0 &&
               !move_packets<Type, Op>(a_, simple_movement(elements, false, 0, 0), all_threads())) {
      return;
    }
    if (a_.eager && step_->destinations > 0)
      post_packets(a_, items_[next_], *step_, threadIdx.x, 1);
  }
}

// A step with one source, as it is.
template <typename Type, typename Op>
__device__ inline bool LaneRunner<Type, Op>::pass_words(uint64_t bytes) const {
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
      const auto here = [&] {
        read = load_packet(packet);
        return read.flag0 == call && read.flag1 == mixed;
      };
      if (!wait_until(a_.watch, peer, here, FarMessages{a_})) return false;
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

// The leaders: a small message of send/recv in a kernel that has others too, or more than it has
// teams for. (Not a member: then all that the leaders know would lie in memory.)
template <typename Type, typename Op>
__device__ __noinline__ bool LaneRunner<Type, Op>::move_small_message(const LaneArguments& a,
                                                                      const LaneItem& item) {
  LaneMovement m = {};
  m.sources = item.at;
  m.destinations = item.at + 1;
  m.source_count = m.destination_count = 1;
  m.elements = item.lengths[0].rest;
  m.source_ends = item.ends;
  m.destination_ends = item.ends + 1;
  m.call = item.call;
  return move_packets<Type, Op>(a, m, warp_threads());
}

}  // namespace weft::cuda
