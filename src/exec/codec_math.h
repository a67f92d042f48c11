// The arithmetic of codecs (src/schedule/codec.h), for host and device. Every operation rounds by
// itself: no fused multiply-add. So both give the same bits. Host files that include it are
// compiled with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/base/host_device.h"
#include "src/schedule/codec.h"

namespace weft::codec {

WEFT_HD inline uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}
WEFT_HD inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}
WEFT_HD inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
WEFT_HD inline float sum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
WEFT_HD inline float difference(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}
WEFT_HD inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

inline constexpr uint32_t kMagnitude = 0x7fffffffu, kInfinity = 0x7f800000u, kNan = 0x7fc00000u;
// Adding it rounds to a whole number, to nearest even. The low bits of the sum are the number.
inline constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23

// What a block is multiplied by when it is encoded, and when it is decoded.
struct Scales {
  float encode = 0, decode = 0;
};

// The largest code.
WEFT_HD inline float largest_code(Codec kind) {
  return kind == Codec::kInt8 ? 127.0f : kind == Codec::kInt4 ? 7.0f : 448.0f;
}

// `largest`: the bits of the block's largest magnitude. As numbers, bits of magnitudes have the
// order of the magnitudes, and NaNs are largest.
WEFT_HD inline Scales scales_of(Codec kind, uint32_t largest) {
  if (largest >= kInfinity) return {0, float_of(kNan)};
  const float magnitude = float_of(largest);
  if (magnitude < kCodecFloor) return {0, 0};
  const float top = largest_code(kind);
  return {quotient(top, magnitude), quotient(magnitude, top)};
}

WEFT_HD inline int8_t int8_code(float value, float scale) {
  return static_cast<int8_t>(bits_of(sum(product(value, scale), kRounder)) & 0xffu);
}
// -7 to 7, plus 8.
WEFT_HD inline uint8_t int4_code(float value, float scale) {
  return static_cast<uint8_t>((bits_of(sum(product(value, scale), kRounder)) + 8) & 15u);
}
WEFT_HD inline float int4_value(uint32_t code) {
  return static_cast<float>(static_cast<int32_t>(code & 15u) - 8);
}

// e4m3 of a finite value of at most 448, to nearest even.
WEFT_HD inline uint8_t fp8_code(float value, float scale) {
  const uint32_t bits = bits_of(product(value, scale)), magnitude = bits & kMagnitude;
  // Below 2^-6 codes are multiples of 2^-9. Adding 2^14 rounds to them.
  const uint32_t small = bits_of(sum(float_of(magnitude), 16384.0f)) - 0x46800000u;
  const uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t code = magnitude < 0x3c800000u ? small : normal;
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | (code > 0x7eu ? 0x7eu : code));
}
WEFT_HD inline float fp8_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float normal = float_of((magnitude << 20) + 0x3c000000u);
  const float small = product(static_cast<float>(magnitude), 0x1p-9f);
  return float_of(bits_of(magnitude < 8 ? small : normal) | (code & 0x80u) << 24);
}

WEFT_HD inline float onebit_value(bool negative, float scale) { return negative ? -scale : scale; }

// The mean magnitude of a block is summed in this many columns, each from top to bottom, and then
// in order.
inline constexpr uint32_t kMeanColumns = 16;

}  // namespace weft::codec
