// All PTX: vector accesses with cache hints, and loads and stores with ordering.
// (tests/exec/cuda/emulation has its own file of this name, for the host.)
#pragma once

#include <cstdint>

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

// For data that is read or written once: it bypasses the L1 cache.
__device__ inline uint4 load_vector(const void* at) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ inline uint32_t load_once(const uint32_t* at) {
  uint32_t v;
  asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
__device__ inline uint64_t load_once(const uint64_t* at) {
  uint64_t v;
  asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}
// Any address. Makes two aligned loads; both must be in readable memory. Neighbouring threads read
// the same vectors, so they stay in the L1 cache.
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

// Packets: one 16-byte access each, always to memory.
__device__ inline void store_packet(Packet* at, uint32_t data0, uint32_t data1, uint32_t flag0,
                                    uint32_t flag1) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(data0), "r"(flag0),
               "r"(data1), "r"(flag1)
               : "memory");
}
// A packet with 8 bytes of data.
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
__device__ inline uint64_t load_acquire_system(const uint64_t* at) {
  uint64_t v;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}
__device__ inline void store_release_system(uint64_t* at, uint64_t v) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ inline void store_relaxed_system(uint64_t* at, uint64_t v) {
  asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline uint64_t load_acquire_gpu(const uint64_t* at) {
  uint64_t v;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}
__device__ inline void store_release_gpu(uint64_t* at, uint64_t v) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ inline uint64_t load_acquire(const uint64_t* at, bool system) {
  return system ? load_acquire_system(at) : load_acquire_gpu(at);
}
__device__ inline void store_relaxed(uint64_t* at, uint64_t v, bool system) {
  if (system) {
    store_relaxed_system(at, v);
  } else {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
  }
}
__device__ inline void fence(bool system) {
  if (system) {
    fence_system();
  } else {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
}
// For all threads of a warp.
inline constexpr uint32_t kWarp = 32;
__device__ inline void warp_meet() { __syncwarp(); }
// Which threads of the warp say so, a bit each.
__device__ inline uint32_t warp_ballot(bool one) { return __ballot_sync(0xffffffffu, one); }
// The value of one thread of the warp.
__device__ inline int warp_get(int value, uint32_t thread) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(thread));
}
__device__ inline uint32_t warp_get(uint32_t value, uint32_t thread) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(thread));
}
// A barrier for all threads of a block, which may arrive from different places in the code.
__device__ inline void meet_block() { asm volatile("barrier.sync 1;" ::: "memory"); }
__device__ inline uint4 load_counters(const PortCounters* at) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
template <typename T>
__device__ inline T load_volatile(const T* at) {
  return *static_cast<const volatile T*>(at);
}
// Writes the word if it is still 0, which the host sees.
__device__ inline void set_once(uint64_t* at, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicCAS_system(reinterpret_cast<unsigned long long*>(at), 0ull,
                   static_cast<unsigned long long>(value));
}
template <typename T>
__device__ inline void store_volatile(T* at, T value) {
  *static_cast<volatile T*>(at) = value;
}

// Reads kernel parameters through the generic address space.
__device__ inline uint4 load_parameter(const void* at) {
  uint4 v;
  asm volatile("ld.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

// If the launch allows it, a kernel starts before its predecessor in the stream ends. It waits here
// until all earlier work is done and visible.
__device__ inline void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// From here on the next kernel of the stream may start and run up to its own wait.
__device__ inline void let_successor_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Returns the same value. The compiler does not compute values that depend on it before this place.
__device__ inline uint32_t worked_out_here(uint32_t v) {
  asm volatile("" : "+r"(v));
  return v;
}

__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Called between two polls.
__device__ inline void between_looks() {}

}  // namespace weft::cuda
