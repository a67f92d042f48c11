// Eight elements and their codes, as one thread has them. Accesses are as wide as addresses allow:
// slots may be in host memory, where every access is a packet on the bus.
#pragma once

#include <type_traits>

#include "src/exec/codec_math.h"
#include "src/exec/cuda/kernels/ptx.cuh"

namespace weft::cuda {

inline constexpr uint32_t kCodedGroup = 8;
using CodedValues = float[kCodedGroup];

__device__ inline bool is_aligned(const void* at, uint32_t to) {
  return reinterpret_cast<uintptr_t>(at) % to == 0;
}

// Elements of a group before they become floats, or its codes and their scale.
struct CodedWords {
  uint32_t words[kCodedGroup];
  float scale;
  __device__ uint64_t codes() const { return uint64_t{words[1]} << 32 | words[0]; }
};

template <typename Element>
__device__ __forceinline__ Element element_of(const CodedWords& from, uint32_t i) {
  if constexpr (sizeof(Element) == 4)
    return codec::float_of(from.words[i]);
  else
    return static_cast<Element>(from.words[i / 2] >> 16 * (i % 2));
}

// The first `count` elements. The others are zeros, unless all are there.
template <typename Element>
__device__ __forceinline__ void load_elements(const std::byte* from, uint32_t count,
                                              CodedWords& to) {
  constexpr uint32_t kVectors = kCodedGroup * sizeof(Element) / 16;
  if (count == kCodedGroup && is_aligned(from, 16)) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; v++) {
      const uint4 read = load_vector(from + 16 * v);
      to.words[4 * v] = read.x;
      to.words[4 * v + 1] = read.y;
      to.words[4 * v + 2] = read.z;
      to.words[4 * v + 3] = read.w;
    }
    return;
  }
  using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;
  constexpr uint32_t kPerWord = 4 / sizeof(Element);
#pragma unroll
  for (uint32_t w = 0; w < kCodedGroup / kPerWord; w++) to.words[w] = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCodedGroup; i++)
    if (i < count)
      to.words[i / kPerWord] |=
          static_cast<uint32_t>(reinterpret_cast<const volatile Bits*>(from)[i])
          << 16 * (i % kPerWord);
}

// `Type`: how floats become elements.
template <typename Type>
__device__ __forceinline__ void store_elements(std::byte* to, uint32_t count,
                                               const CodedValues& values) {
  using Element = typename Type::Element;
  if (count == kCodedGroup && is_aligned(to, 16)) {
    constexpr uint32_t kCount = 16 / sizeof(Element);
#pragma unroll
    for (uint32_t v = 0; v < kCodedGroup / kCount; v++) {
      Element elements[kCount];
#pragma unroll
      for (uint32_t i = 0; i < kCount; i++) elements[i] = Type::store(values[v * kCount + i]);
      uint4 vector;
      memcpy(&vector, elements, sizeof vector);
      store_vector(to + 16 * v, vector);
    }
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < kCodedGroup; i++)
    if (i < count) reinterpret_cast<Element*>(to)[i] = Type::store(values[i]);
}

// Codes of a group lie in a word, the first one lowest.
__device__ inline uint32_t code_bits(Codec kind) {
  return kind == Codec::kInt4 ? 4 : kind == Codec::kOneBit ? 1 : 8;
}
__device__ inline uint32_t code_bytes(Codec kind, uint32_t count) {
  return (count * code_bits(kind) + 7) / 8;
}

__device__ __forceinline__ uint64_t load_codes(const std::byte* from, uint32_t bytes) {
  if (bytes == 8 && is_aligned(from, 8)) return load_once(reinterpret_cast<const uint64_t*>(from));
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  const bool whole = bytes % 4 == 0 && is_aligned(from, 4);
  if (whole && bytes == 4) return load_once(words);
  if (whole && bytes == 8) return load_once(words) | uint64_t{load_once(words + 1)} << 32;
  uint64_t codes = 0;
  for (uint32_t i = 0; i < bytes; i++)
    codes |= uint64_t{reinterpret_cast<const volatile uint8_t*>(from)[i]} << 8 * i;
  return codes;
}
__device__ __forceinline__ void store_codes(std::byte* to, uint32_t bytes, uint64_t codes) {
  if (bytes == 8 && is_aligned(to, 8)) {
    *reinterpret_cast<uint64_t*>(to) = codes;
  } else if (bytes % 4 == 0 && is_aligned(to, 4)) {
    for (uint32_t i = 0; i < bytes / 4; i++)
      reinterpret_cast<uint32_t*>(to)[i] = static_cast<uint32_t>(codes >> 32 * i);
  } else {
    for (uint32_t i = 0; i < bytes; i++) to[i] = static_cast<std::byte>(codes >> 8 * i);
  }
}

template <Codec kKind>
__device__ __forceinline__ uint32_t code_of(float value, float scale) {
  if constexpr (kKind == Codec::kInt8) return static_cast<uint8_t>(codec::int8_code(value, scale));
  if constexpr (kKind == Codec::kInt4) return codec::int4_code(value, scale);
  if constexpr (kKind == Codec::kFp8) return codec::fp8_code(value, scale);
  return codec::bits_of(value) >> 31;
}
template <Codec kKind>
__device__ __forceinline__ float value_of(uint32_t code, float scale) {
  if constexpr (kKind == Codec::kInt8)
    return codec::product(static_cast<float>(static_cast<int8_t>(code & 0xffu)), scale);
  if constexpr (kKind == Codec::kInt4) return codec::product(codec::int4_value(code), scale);
  if constexpr (kKind == Codec::kFp8) return codec::product(codec::fp8_value(code & 0xffu), scale);
  return codec::onebit_value((code & 1u) != 0, scale);
}

// Calls `work` with a scaled codec as a constant, so that its loops have no branches.
template <typename Work>
__device__ __forceinline__ void with_codec(Codec kind, Work work) {
  switch (kind) {
    case Codec::kInt8:
      return work(std::integral_constant<Codec, Codec::kInt8>{});
    case Codec::kInt4:
      return work(std::integral_constant<Codec, Codec::kInt4>{});
    case Codec::kFp8:
      return work(std::integral_constant<Codec, Codec::kFp8>{});
    default:
      return work(std::integral_constant<Codec, Codec::kOneBit>{});
  }
}

// Values of `Type`, which have the block's scale, as codes. With a scale of 0 all are those of 0.
template <typename Type>
__device__ __forceinline__ uint64_t encode_group(Codec kind, const CodedValues& values,
                                                 uint32_t count, float scale) {
  uint64_t codes = 0;
  with_codec(kind, [&](auto constant) {
    constexpr Codec kKind = decltype(constant)::value;
    constexpr uint32_t kBits = kKind == Codec::kInt4 ? 4 : kKind == Codec::kOneBit ? 1 : 8;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) {
      const float value = scale == 0 ? 0.0f : Type::load(Type::store(values[i]));
      codes |= uint64_t{code_of<kKind>(value, scale)} << kBits * i;
    }
    if (count < kCodedGroup) codes &= (uint64_t{1} << kBits * count) - 1;
  });
  return codes;
}
template <typename Type>
__device__ __forceinline__ void decode_group(Codec kind, uint64_t codes, float scale,
                                             CodedValues& values) {
  with_codec(kind, [&](auto constant) {
    constexpr Codec kKind = decltype(constant)::value;
    constexpr uint32_t kBits = kKind == Codec::kInt4 ? 4 : kKind == Codec::kOneBit ? 1 : 8;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) {
      const auto code = static_cast<uint32_t>(codes >> kBits * i);
      values[i] = Type::load(Type::store(value_of<kKind>(code, scale)));
    }
  });
}

}  // namespace weft::cuda
