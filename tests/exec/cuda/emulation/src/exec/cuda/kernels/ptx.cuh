// Replaces src/exec/cuda/kernels/ptx.cuh to run a kernel's code on the host. It emulates the parts
// of the language, the GPU and its memory that kernels use. emulated_block.h has the threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "src/exec/cuda/device_comm.h"
#include "tests/exec/cuda/emulated_block.h"

#if __has_include(<vector_types.h>)
#include <vector_types.h>
#else
struct uint4 {
  uint32_t x, y, z, w;
};
#endif

// CUDA's headers, if they are installed, define these for nvcc.
#undef __device__
#undef __global__
#undef __shared__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

namespace weft::cuda {

struct Index {
  uint32_t x;
};
#define threadIdx (weft::cuda::Index{weft::cuda::emulated.number})
#define blockDim (weft::cuda::Index{weft::cuda::emulated.block->size})
#define blockIdx (weft::cuda::Index{weft::cuda::emulated.block->index})
#define gridDim (weft::cuda::Index{weft::cuda::emulated.block->blocks})

inline void __syncthreads() { emulated.block->meeting.arrive_and_wait(); }
inline void meet_block() { __syncthreads(); }
inline bool __syncthreads_or(bool one) {
  EmulatedBlock& block = *emulated.block;
  const uint32_t turn = emulated.meetings++ % 2;
  if (one) block.any[turn] = true;
  __syncthreads();
  const bool any = block.any[turn];
  __syncthreads();
  block.any[turn] = false;
  return any;
}
inline void warp_meet() { emulated.warp().meeting.arrive_and_wait(); }
inline uint32_t warp_ballot(bool one) {
  EmulatedWarp& warp = emulated.warp();
  const uint32_t turn = emulated.ballots++ % 2;
  if (one) warp.ballots[turn] |= 1u << emulated.number % kWarp;
  warp_meet();
  const uint32_t all = warp.ballots[turn];
  warp_meet();
  warp.ballots[turn] = 0;
  return all;
}
inline uint32_t warp_get(uint32_t value, uint32_t thread) {
  EmulatedWarp& warp = emulated.warp();
  const uint32_t turn = emulated.gets++ % 2;
  warp.said[turn][emulated.number % kWarp] = value;
  warp_meet();
  return warp.said[turn][thread];
}
inline int warp_get(int value, uint32_t thread) {
  return static_cast<int>(warp_get(static_cast<uint32_t>(value), thread));
}
inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline uint32_t atomicAdd(uint32_t* at, uint32_t more) {
  return std::atomic_ref(*at).fetch_add(more);
}
inline void set_once(uint64_t* at, uint64_t value) {
  uint64_t wanted = 0;
  std::atomic_ref(*at).compare_exchange_strong(wanted, value);
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint4 load_vector(const void* at) {
  uint4 v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline uint32_t load_once(const uint32_t* at) {
  uint32_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline uint64_t load_once(const uint64_t* at) {
  uint64_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline uint4 load_unaligned_vector(const void* at) { return load_vector(at); }
inline uint4 load_parameter(const void* at) { return load_vector(at); }
inline void store_vector(void* at, uint4 v) { std::memcpy(at, &v, sizeof v); }

inline uint64_t load_acquire_system(const uint64_t* at) {
  const uint64_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
  emulated.block->give_way();  // there are more threads than cores, and they do not sleep
  return value;
}
// Kernels order these stores with fences. Here the store itself orders, for race detectors.
inline void store_relaxed_system(uint64_t* at, uint64_t value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
inline uint64_t load_acquire(const uint64_t* at, bool) { return load_acquire_system(at); }
inline void store_relaxed(uint64_t* at, uint64_t value, bool) { store_relaxed_system(at, value); }
inline void fence(bool) {}
inline uint32_t load_acquire(const uint32_t* at, bool) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
inline void store_release(uint32_t* at, uint32_t value, bool) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
inline uint4 load_counters(const PortCounters* at) {
  return {at->sent, at->received, __atomic_load_n(&at->consumed, __ATOMIC_ACQUIRE), 0};
}
template <typename T>
T load_volatile(const T* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
template <typename T>
void store_volatile(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
// Flags after data, as if a packet arrived in one piece.
inline void store_packet(Packet* at, uint32_t data0, uint32_t data1, uint32_t flag0,
                         uint32_t flag1) {
  __atomic_store_n(&at->data0, data0, __ATOMIC_RELAXED);
  __atomic_store_n(&at->data1, data1, __ATOMIC_RELAXED);
  __atomic_store_n(&at->flag1, flag1, __ATOMIC_RELEASE);
  __atomic_store_n(&at->flag0, flag0, __ATOMIC_RELEASE);
}
inline void store_packet(Packet* at, uint64_t data, uint32_t flag) {
  store_packet(at, static_cast<uint32_t>(data), static_cast<uint32_t>(data >> 32), flag, flag);
}
inline Packet load_packet(const Packet* at) {
  Packet p;
  p.flag0 = __atomic_load_n(&at->flag0, __ATOMIC_ACQUIRE);
  p.flag1 = __atomic_load_n(&at->flag1, __ATOMIC_ACQUIRE);
  p.data0 = __atomic_load_n(&at->data0, __ATOMIC_RELAXED);
  p.data1 = __atomic_load_n(&at->data1, __ATOMIC_RELAXED);
  return p;
}
inline void fence_system() {}
inline void wait_for_predecessor() {}
inline void let_successor_start() {}
inline void between_looks() { emulated.block->give_way(); }
inline uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace weft::cuda
