// What waits for eager messages look at besides: producers that have left, whose data may be on the
// way, and consumers that are in another call.
#pragma once

#include "src/exec/cuda/kernels/lane_places.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"

namespace weft::cuda {

// Whether a port's consumer has entered another call than this one. (It looks twice, because a
// grant may arrive in two halves. Messages of send/recv have no other call, and the next one's
// grant comes to the same place.)
__device__ inline bool is_in_other_call(const LaneArguments& a, const LanePlaces& places,
                                        const LanePort& port) {
  if (!places.is_eager(port) || places.is_message()) return false;
  for (int look = 0; look < 2; look++) {
    const Packet granted = load_packet(places.grant(port));
    if (granted.flag0 != places.call() || granted.flag1 == (places.call() ^ a.signature))
      return false;
  }
  return true;
}

// A thread's: reports such a consumer of the block's items.
__device__ __noinline__ inline bool reports_other_call(const LaneArguments& a) {
  for (uint32_t i = 0; i < a.block_item_count; i++) {
    const LaneItem& item = a.block_items[i];
    const LanePlaces places(a, item);
    const auto* ports = item.lane->at<LanePort>(item.lane->sends_at);
    for (uint32_t s = 0; s < item.lane->sends; s++) {
      if (!is_in_other_call(a, places, ports[s])) continue;
      report(a.watch, KernelError::kOtherCall, ports[s].peer);
      return true;
    }
  }
  return false;
}

// For wait_until(). Only eager messages come over a network here.
struct FarMessages {
  const LaneArguments& a;
  __device__ uint32_t on_the_way() const {
    return a.eager ? static_cast<uint32_t>(kOnTheWayNs >> kWaitUnit) : 0;
  }
  __device__ bool gives_up() const { return a.eager && reports_other_call(a); }
};

}  // namespace weft::cuda
