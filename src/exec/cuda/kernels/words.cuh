// Memory in words of eight bytes, as packets carry it.
#pragma once

#include "src/exec/cuda/kernels/ptx.cuh"

namespace weft::cuda {

// Eight bytes of memory. Bytes beyond `left` read as zero and are not written. Uses wide accesses
// if the address allows.
__device__ inline uint64_t load_word(const std::byte* at, uint64_t left) {
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && left >= 8)
    return *reinterpret_cast<const volatile uint64_t*>(at);
  uint64_t v = 0;
  if ((reinterpret_cast<uintptr_t>(at) & 3) == 0 && left >= 8) {
    v = *reinterpret_cast<const volatile uint32_t*>(at);
    return v | static_cast<uint64_t>(reinterpret_cast<const volatile uint32_t*>(at)[1]) << 32;
  }
  for (uint32_t i = 0; i < 8; i++)
    if (i < left)
      v |= static_cast<uint64_t>(reinterpret_cast<const volatile uint8_t*>(at)[i]) << (8 * i);
  return v;
}
__device__ inline void store_word(std::byte* at, uint64_t left, uint64_t v) {
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && left >= 8) {
    *reinterpret_cast<volatile uint64_t*>(at) = v;
  } else if ((reinterpret_cast<uintptr_t>(at) & 3) == 0 && left >= 8) {
    reinterpret_cast<volatile uint32_t*>(at)[0] = static_cast<uint32_t>(v);
    reinterpret_cast<volatile uint32_t*>(at)[1] = static_cast<uint32_t>(v >> 32);
  } else {
    for (uint32_t i = 0; i < 8; i++)
      if (i < left) reinterpret_cast<volatile uint8_t*>(at)[i] = static_cast<uint8_t>(v >> (8 * i));
  }
}

}  // namespace weft::cuda
