// How long kernels wait for rings in host memory.
#pragma once

#include "src/exec/cuda/kernels/memory.cuh"

namespace weft::cuda {

// What a rank sent before it left may still be on its way through the network; as in host mode.
inline constexpr uint64_t kOnTheWayNs = 2'000'000'000;

// Of one thread, while it waits for one thing. The host's flags are far away: looked at now and
// then.
class Patience {
 public:
  // After a look that found nothing; false, and told to the host, when there is nothing to wait for
  // any more. `peer`: whom it waits for, -1: nobody.
  __device__ bool lasts(const DeviceComm& comm, int peer) {
    if ((++looks_ & 0xff) != 0) return true;
    const HostWord said = load_flags(comm);
    if (said.stop != 0) return false;
    const bool gone = peer >= 0 && (said.gone >> peer & 1) != 0;
    if (!gone) left_ = 0;
    const uint64_t now = now_ns();
    if (begun_ == 0) begun_ = now;
    if (now - begun_ > kLongWaitNs) tell_wait(comm, peer, now - begun_);
    if (comm.timeout_ns == 0 && !gone) return true;
    if (gone && left_ == 0) left_ = now;
    const bool late = comm.timeout_ns != 0 && now - begun_ > comm.timeout_ns;
    if (!late && (!gone || now - left_ <= kOnTheWayNs)) return true;
    report(comm, late ? KernelError::kTimeout : KernelError::kLeft, peer);
    return false;
  }
  // It came.
  __device__ void start_again() { begun_ = left_ = 0; }

 private:
  uint32_t looks_ = 0;
  uint64_t begun_ = 0, left_ = 0;  // since when it waits, and for a rank that is gone
};

}  // namespace weft::cuda
