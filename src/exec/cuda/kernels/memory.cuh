// What kernels do with memory besides moving data: fetching their parameters, waiting with a way
// out.
#pragma once

#include "src/exec/cuda/kernels/ptx.cuh"

namespace weft::cuda {

// Kernel parameters lie in constant memory, where every line costs a trip of its own at its first
// use. One trip for all of them: the block copies them to shared memory through the generic address
// space, all loads before the first store. load() may go before other loads, store() after them.
class Parameters {
 public:
  __device__ void load(const void* parameters, uint32_t bytes) {
    count_ = (bytes + 15) / 16;
    from_ = static_cast<const char*>(parameters);
#pragma unroll
    for (uint32_t k = 0; k < kMost; k++)
      if (index(k) < count_) v_[k] = fetch(index(k));
  }
  __device__ void store(void* shared) const {
    auto* to = static_cast<uint4*>(shared);
#pragma unroll
    for (uint32_t k = 0; k < kMost; k++)
      if (index(k) < count_) to[index(k)] = v_[k];
    for (uint32_t i = index(kMost); i < count_; i += blockDim.x) to[i] = fetch(i);
  }

 private:
  static constexpr uint32_t kMost = 2;
  static __device__ uint32_t index(uint32_t k) { return k * blockDim.x + threadIdx.x; }
  __device__ uint4 fetch(uint32_t i) const { return load_parameter(from_ + i * 16); }
  const char* from_;
  uint32_t count_;
  uint4 v_[kMost];
};

// A pre-multiplier that lies on the device has its value when the kernel runs.
__device__ inline uint64_t load_scalar(const void* at, uint32_t bytes) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < bytes; i++)
    bits |= static_cast<uint64_t>(static_cast<const volatile uint8_t*>(at)[i]) << (8 * i);
  return bits;
}
// All threads; the reduction is in shared memory.
__device__ inline void fetch_scalar(Reduction& reduction, uint32_t bytes) {
  if (reduction.scalar_at == nullptr) return;
  if (threadIdx.x == 0) reduction.scalar_bits = load_scalar(reduction.scalar_at, bytes);
  __syncthreads();
}

// The first error of a kernel is told to the host, and every wait ends.
__device__ inline void report(const DeviceComm& comm, KernelError error, int peer) {
  atomicCAS_system(&comm.flags->error, 0u, error_word(error, peer));
  *static_cast<volatile uint32_t*>(&comm.flags->stop) = 1;
}

// For the host's warning; it takes the word away again.
__device__ inline void tell_wait(const DeviceComm& comm, int peer, uint64_t ns) {
  if (peer >= 0) *static_cast<volatile uint32_t*>(&comm.flags->wait) = wait_word(peer, ns);
}

// What the host says, in one trip.
struct HostWord {
  uint32_t stop, gone;
};
__device__ inline HostWord load_flags(const DeviceComm& comm) {
  static_assert(offsetof(HostFlags, gone) == offsetof(HostFlags, stop) + 4);
  const uint64_t both = *reinterpret_cast<const volatile uint64_t*>(&comm.flags->stop);
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
}

// Spins until `ready()`; false when the host asked everyone to stop, when `peer` has left, or when
// it let this rank wait for too long. The host's flags are far away: looked at now and then.
template <typename Ready>
__device__ __forceinline__ bool wait_until(const DeviceComm& comm, const int& peer, Ready ready) {
  uint32_t begun = 0;  // in units of a wait_word(): there are not the registers for more
  int left = -1;       // whom the last look at the flags found gone
  for (uint32_t spins = 1; !ready(); spins++) {
    between_looks();
    if ((spins & 0x3ff) != 0) continue;
    const HostWord said = load_flags(comm);
    if (said.stop != 0) return false;
    const bool gone = peer >= 0 && (said.gone >> peer & 1) != 0;
    if (gone && left == peer) {  // what came before it left has been seen since
      report(comm, KernelError::kLeft, peer);
      return false;
    }
    left = gone ? peer : -1;
    const auto now = static_cast<uint32_t>(now_ns() >> kWaitUnit);
    if (begun == 0) begun = now;
    const uint64_t waited = uint64_t{now - begun} << kWaitUnit;
    // A few times a second at most: it is a way to host memory.
    if ((spins & 0x3ffff) == 0 && waited > kLongWaitNs) tell_wait(comm, peer, waited);
    if (comm.timeout_ns != 0 && waited > comm.timeout_ns + (1u << kWaitUnit)) {
      report(comm, KernelError::kTimeout, peer);
      return false;
    }
  }
  return true;
}

}  // namespace weft::cuda
