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
__device__ inline void store_vector(void* at, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// Packets: one 16-byte access each, always to and from memory.
__device__ inline void store_packet(Packet* at, uint32_t data0, uint32_t data1, uint32_t flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(data0), "r"(flag),
               "r"(data1), "r"(flag)
               : "memory");
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
__device__ inline uint32_t load_volatile(const uint32_t* at) {
  return *static_cast<const volatile uint32_t*>(at);
}

// Kernel parameters lie in constant memory, where every line costs a trip of its own at its first
// use. One trip for all of them: the block copies them to shared memory through the generic address
// space, a vector per thread.
template <typename T>
__device__ void fetch_parameters(const T& parameters, T& shared) {
  static_assert(sizeof(T) % 16 == 0 && sizeof(T) / 16 <= kThreads);
  if (threadIdx.x < sizeof(T) / 16) {
    const char* at = reinterpret_cast<const char*>(&parameters) + threadIdx.x * 16;
    uint4 v;
    asm volatile("ld.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    reinterpret_cast<uint4*>(&shared)[threadIdx.x] = v;
  }
}

// Spins until `ready()`; false when the host asked everyone to stop. The host's flag is far away:
// looked at now and then.
template <typename Ready>
__device__ bool wait_until(const DeviceComm& comm, Ready ready) {
  for (uint32_t spins = 1; !ready(); spins++) {
    if ((spins & 0x3ff) == 0 && load_volatile(&comm.flags->stop) != 0) return false;
  }
  return true;
}

}  // namespace weft::cuda
