// How long kernels wait for FIFOs in host memory.
#pragma once

#include "src/exec/cuda/kernels/memory.cuh"

namespace weft::cuda {

// Data that a rank sent before it left may still be in the network. The same limit as in host mode.
inline constexpr uint64_t kOnTheWayNs = 2'000'000'000;

// One thread's wait for one thing. The host's flags are far away, so every 256th poll reads them.
class Patience {
 public:
  // Called after a poll that found nothing. False if the wait is over without success; the host is
  // told, unless it asked to stop. `peer`: the rank waited for, -1 if none; `step`: where,
  // likewise.
  __device__ bool lasts(const Watch& watch, int peer, int step = -1) {
    if ((++looks_ & 0xff) != 0) return true;
    const HostWord said = load_flags(watch);
    if (said.stop != 0) return false;
    const bool gone = has_left(watch, said, peer);
    if (!gone) left_ = 0;
    const uint64_t now = now_ns();
    if (begun_ == 0) begun_ = now;
    if (now - begun_ > kLongWaitNs) tell_wait(watch, peer, now - begun_);
    if (watch.timeout_ns == 0 && !gone) return true;
    if (gone && left_ == 0) left_ = now;
    const bool late = watch.timeout_ns != 0 && now - begun_ > watch.timeout_ns;
    if (!late && (!gone || now - left_ <= kOnTheWayNs)) return true;
    report(watch, late ? KernelError::kTimeout : KernelError::kLeft, peer, step);
    return false;
  }
  // Whether the last call looked at more than the poll itself: the host's flags, the time.
  __device__ bool looked_around() const { return (looks_ & 0xff) == 0; }
  // Called when the awaited thing came.
  __device__ void start_again() { begun_ = left_ = 0; }

 private:
  uint32_t looks_ = 0;
  uint64_t begun_ = 0, left_ = 0;  // when the wait began, and when the peer was first seen gone
};

}  // namespace weft::cuda
