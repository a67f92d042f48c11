// Arithmetic traits of the 12 element types on the host: how an element is loaded into and stored
// from the type that reductions accumulate in. 16- and 8-bit floats accumulate in float and are
// rounded once, to nearest even.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace weft::host {

template <typename T>
struct Native {
  using Element = T;
  using Accumulator = T;
  static Accumulator load(Element e) { return e; }
  static Element store(Accumulator a) { return a; }
};

inline float float_from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t bits_from_float(float value) { return std::bit_cast<uint32_t>(value); }

// IEEE half precision in software.
struct PortableHalf {
  using Element = uint16_t;
  using Accumulator = float;
  static float load(uint16_t e) {
    // Exponent rebias by a multiplication handles subnormals; infinities and NaNs are restored
    // after it.
    const uint32_t magnitude = (e & 0x7fffu) << 13;
    float value = float_from_bits(magnitude) * 0x1p112f;
    if ((e & 0x7c00u) == 0x7c00u) value = float_from_bits(magnitude | 0x7f800000u);
    return float_from_bits(bits_from_float(value) | (static_cast<uint32_t>(e & 0x8000u) << 16));
  }
  static uint16_t store(float a) {
    const uint32_t bits = bits_from_float(a), sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u)
      return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
    if (magnitude < 0x38800000u) {                   // subnormal: the float adder does the rounding
      const float shifted = float_from_bits(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (bits_from_float(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
};

#if defined(__ARM_FP16_FORMAT_IEEE)
struct Half {
  using Element = uint16_t;
  using Accumulator = float;
  static float load(uint16_t e) { return static_cast<float>(std::bit_cast<__fp16>(e)); }
  static uint16_t store(float a) { return std::bit_cast<uint16_t>(static_cast<__fp16>(a)); }
};
#else
using Half = PortableHalf;
#endif

struct BFloat16 {
  using Element = uint16_t;
  using Accumulator = float;
  static float load(uint16_t e) { return float_from_bits(static_cast<uint32_t>(e) << 16); }
  static uint16_t store(float a) {
    const uint32_t bits = bits_from_float(a);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
  }
};

// 8-bit floats: ExponentBits of exponent, the rest mantissa. e4m3 has no infinity and one NaN; both
// saturate to the largest finite value, as CUDA's conversions do.
template <int ExponentBits, int Bias, uint8_t Largest, uint8_t Nan, bool HasInfinity>
struct Float8 {
  using Element = uint8_t;
  using Accumulator = float;
  static constexpr int kMantissa = 7 - ExponentBits;

  static float decode(uint8_t e) {
    const int exponent = (e & 0x7f) >> kMantissa, mantissa = e & ((1 << kMantissa) - 1);
    float value = 0;
    if ((e & 0x7f) > Largest) {
      const bool infinite = HasInfinity && (e & 0x7f) == Largest + 1;
      value = infinite ? INFINITY : NAN;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - Bias - kMantissa);
    } else {
      value =
          std::ldexp(static_cast<float>(mantissa + (1 << kMantissa)), exponent - Bias - kMantissa);
    }
    return (e & 0x80) != 0 ? -value : value;
  }

  static float load(uint8_t e) {
    static const std::array<float, 256> table = [] {
      std::array<float, 256> t{};
      for (int i = 0; i < 256; i++) t[static_cast<size_t>(i)] = decode(static_cast<uint8_t>(i));
      return t;
    }();
    return table[e];
  }

  static uint8_t store(float a) {
    const uint32_t bits = bits_from_float(a), magnitude = bits & 0x7fffffffu;
    const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
    if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | Nan);
    constexpr int kShift = 23 - kMantissa;
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Bias) << 23;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 - Bias + 1) << 23;
    uint32_t code = 0;
    if (magnitude < kSmallestNormal) {
      // Adding 2^k, k chosen so that an ulp of the sum is the smallest subnormal, rounds to nearest
      // even.
      constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 1 - Bias - kMantissa + 23) << 23;
      code = bits_from_float(float_from_bits(magnitude) + float_from_bits(kMagic)) - kMagic;
    } else {
      const uint32_t rounded =
          magnitude - kRebias + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1u);
      code = rounded >> kShift;
    }
    if (code > Largest) code = Largest;
    return static_cast<uint8_t>(sign | code);
  }
};

using Float8E4M3 = Float8<4, 7, 0x7e, 0x7f, false>;
using Float8E5M2 = Float8<5, 15, 0x7b, 0x7f, true>;

}  // namespace weft::host
