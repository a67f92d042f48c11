// PTX in one place: vector accesses that bypass what they should, loads and stores with ordering,
// waiting with a way out.
#pragma once

#include <cstdint>

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

// Data that is read or written once: no need to keep it in the first-level cache.
__device__ inline uint4 load_vector(const void* at) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
// Any address: two aligned loads, of which the caller must be allowed to make both. Neighbours read
// the same vectors, so these stay in the first-level cache.
__device__ inline uint4 load_unaligned_vector(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto* base = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
  const uint32_t shift = address & 15;
  if (shift == 0) return load_vector(at);
  uint4 a, b;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "l"(base)
               : "memory");
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
               : "l"(base + 1)
               : "memory");
  if ((shift & 8) != 0) {
    a = {a.z, a.w, b.x, b.y};
    b = {b.z, b.w, b.w, b.w};
  }
  if ((shift & 4) != 0) {
    a = {a.y, a.z, a.w, b.x};
    b = {b.y, b.z, b.w, b.w};
  }
  const uint32_t bits = (shift & 3) * 8;
  return {__funnelshift_r(a.x, a.y, bits), __funnelshift_r(a.y, a.z, bits),
          __funnelshift_r(a.z, a.w, bits), __funnelshift_r(a.w, b.x, bits)};
}
__device__ inline void store_vector(void* at, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// Packets: one 16-byte access each, always to and from memory.
__device__ inline void store_packet(Packet* at, uint32_t data0, uint32_t data1, uint32_t flag0,
                                    uint32_t flag1) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(data0), "r"(flag0),
               "r"(data1), "r"(flag1)
               : "memory");
}
// Eight bytes in a packet of their own.
__device__ inline void store_packet(Packet* at, uint64_t data, uint32_t flag) {
  store_packet(at, static_cast<uint32_t>(data), static_cast<uint32_t>(data >> 32), flag, flag);
}
__device__ inline Packet load_packet(const Packet* at) {
  Packet p;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(p.data0), "=r"(p.flag0), "=r"(p.data1), "=r"(p.flag1)
               : "l"(at)
               : "memory");
  return p;
}

__device__ inline uint32_t load_acquire(const uint32_t* at, bool one_device) {
  uint32_t v;
  if (one_device) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  } else {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  }
  return v;
}
__device__ inline void store_release(uint32_t* at, uint32_t v, bool one_device) {
  if (one_device) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
  } else {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
  }
}
__device__ inline uint4 load_counters(const PortCounters* at) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ inline uint32_t load_volatile(const uint32_t* at) {
  return *static_cast<const volatile uint32_t*>(at);
}

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
  __device__ uint4 fetch(uint32_t i) const {
    uint4 v;
    asm volatile("ld.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from_ + i * 16));
    return v;
  }
  const char* from_;
  uint32_t count_;
  uint4 v_[kMost];
};

// A pre-multiplier that lies on the device has its value when the kernel runs. All threads; the
// reduction is in shared memory.
__device__ inline void fetch_scalar(Reduction& reduction, uint32_t bytes) {
  if (reduction.scalar_at == nullptr) return;
  if (threadIdx.x == 0) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < bytes; i++)
      bits |= static_cast<uint64_t>(static_cast<const volatile uint8_t*>(reduction.scalar_at)[i])
              << (8 * i);
    reduction.scalar_bits = bits;
  }
  __syncthreads();
}

// The first error of a kernel is told to the host, and every wait ends.
__device__ inline void report(const DeviceComm& comm, uint32_t error, int peer) {
  if (atomicCAS_system(&comm.flags->error, 0u, error) == 0u) {
    comm.flags->peer = peer;
    __threadfence_system();
  }
  *static_cast<volatile uint32_t*>(&comm.flags->stop) = 1;
}

__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Spins until `ready()`; false when the host asked everyone to stop, or when `peer` let this rank
// wait for too long. The host's flag is far away: looked at now and then.
template <typename Ready>
__device__ __forceinline__ bool wait_until(const DeviceComm& comm, const int& peer, Ready ready) {
  uint64_t begun = 0;
  for (uint32_t spins = 1; !ready(); spins++) {
    if ((spins & 0x3ff) != 0) continue;
    if (load_volatile(&comm.flags->stop) != 0) return false;
    if (comm.timeout_ns == 0) continue;
    const uint64_t now = now_ns();
    if (begun == 0) begun = now;
    if (now - begun > comm.timeout_ns) {
      report(comm, 2, peer);
      return false;
    }
  }
  return true;
}

}  // namespace weft::cuda
