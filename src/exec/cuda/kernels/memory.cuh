// Memory operations of kernels besides moving data: loading parameters, and waiting with a way out.
#pragma once

#include "src/exec/cuda/kernels/ptx.cuh"

namespace weft::cuda {

// Kernel parameters lie in constant memory. The first use of each line costs a trip of its own. So
// the block copies all parameters to shared memory in one trip, through the generic address space:
// all loads come before the first store. load() may precede other loads; store() follows them.
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

// Reads a pre-multiplier in device memory. It has its value only when the kernel runs.
__device__ inline uint64_t load_scalar(const void* at, uint32_t bytes) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < bytes; i++)
    bits |= static_cast<uint64_t>(static_cast<const volatile uint8_t*>(at)[i]) << (8 * i);
  return bits;
}
// Called by all threads. The reduction is in shared memory.
__device__ inline void fetch_scalar(Reduction& reduction, uint32_t bytes) {
  if (reduction.scalar_at == nullptr) return;
  if (threadIdx.x == 0) reduction.scalar_bits = load_scalar(reduction.scalar_at, bytes);
  __syncthreads();
}

// Reports a kernel's first error to the host. Every wait ends.
__device__ inline void report(const Watch& watch, KernelError error, int peer, int step = -1) {
  set_once(&watch.flags->error, error_word({error, peer, watch.call, step}));
  store_volatile(&watch.flags->stop, 1u);
}

// For the host's warning. The host clears the word.
__device__ inline void tell_wait(const Watch& watch, int peer, uint64_t ns) {
  if (peer >= 0) store_volatile(&watch.flags->wait, wait_word(peer, ns));
}

// The host's flags, read with one load.
struct HostWord {
  uint32_t stop, gone;
};
__device__ inline HostWord load_flags(const Watch& watch) {
  static_assert(offsetof(HostFlags, gone) == offsetof(HostFlags, stop) + 4);
  const uint64_t both = load_volatile(reinterpret_cast<const uint64_t*>(&watch.flags->stop));
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
}

// Whether a rank has left, by the flags just read.
__device__ inline bool has_left(const Watch& watch, const HostWord& said, int peer) {
  if (peer < 0) return false;
  const uint32_t word = peer < 32 ? said.gone : load_volatile(gone_word(watch.flags, peer));
  return (word >> (peer & 31) & 1) != 0;
}

// What else a wait looks at when it has lasted some time.
struct NothingElse {
  // How long data of a peer that has left may be on the way, in units of a wait_word().
  __device__ static uint32_t on_the_way() { return 0; }
  // Whether the wait is over, and has been reported.
  __device__ static bool gives_up() { return false; }
};

// Spins until `ready()`. False if the host asked all to stop, if `peer` has left, or if the wait
// exceeds the timeout. The host's flags are far away, so every 1024th spin reads them.
template <typename Ready, typename Around = NothingElse>
__device__ __forceinline__ bool wait_until(const Watch& watch, const int& peer, Ready ready,
                                           const Around& around = {}) {
  uint32_t begun = 0;  // in units of a wait_word(); a larger type would need too many registers
  int left = -1;       // the peer that the last read of the flags found gone
  for (uint32_t spins = 1; !ready(); spins++) {
    between_looks();
    if ((spins & 0x3ff) != 0) continue;
    const HostWord said = load_flags(watch);
    if (said.stop != 0) return false;
    const bool gone = has_left(watch, said, peer);
    const auto now = static_cast<uint32_t>(now_ns() >> kWaitUnit);
    const bool known = gone && left == peer;
    if (begun == 0 || (gone && !known)) begun = now;
    // Data sent before it left has been checked since.
    if (known && now - begun >= around.on_the_way()) {
      report(watch, KernelError::kLeft, peer);
      return false;
    }
    left = gone ? peer : -1;
    if (around.gives_up()) return false;
    const uint64_t waited = uint64_t{now - begun} << kWaitUnit;
    // A few times a second at most: the word is in host memory.
    if ((spins & 0x3ffff) == 0 && waited > kLongWaitNs) tell_wait(watch, peer, waited);
    if (watch.timeout_ns != 0 && waited > watch.timeout_ns + (1u << kWaitUnit)) {
      report(watch, KernelError::kTimeout, peer);
      return false;
    }
  }
  return true;
}

}  // namespace weft::cuda
