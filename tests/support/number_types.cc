// Bit-level encoding and decoding of the element types.
#include "tests/support/number_types.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft::test {

const std::vector<NumberType>& all_types() {
  static const std::vector<NumberType> types = {
      {ncclInt8, "int8", 1, false, true, 0, 0, false},
      {ncclUint8, "uint8", 1, false, false, 0, 0, false},
      {ncclInt32, "int32", 4, false, true, 0, 0, false},
      {ncclUint32, "uint32", 4, false, false, 0, 0, false},
      {ncclInt64, "int64", 8, false, true, 0, 0, false},
      {ncclUint64, "uint64", 8, false, false, 0, 0, false},
      {ncclFloat16, "float16", 2, true, true, 10, 5, true},
      {ncclFloat32, "float32", 4, true, true, 23, 8, true},
      {ncclFloat64, "float64", 8, true, true, 52, 11, true},
      {ncclBfloat16, "bfloat16", 2, true, true, 7, 8, true},
      {ncclFloat8e4m3, "float8e4m3", 1, true, true, 3, 4, false},
      {ncclFloat8e5m2, "float8e5m2", 1, true, true, 2, 5, true},
  };
  return types;
}

const NumberType& type_of(ncclDataType_t id) { return all_types().at(static_cast<size_t>(id)); }

double decode(const NumberType& type, uint64_t bits) {
  const int m = type.mantissa_bits;
  const uint64_t mantissa = bits & ((uint64_t{1} << m) - 1);
  const int all_ones = (1 << type.exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> m) & all_ones;
  const bool negative = ((bits >> (m + type.exponent_bits)) & 1) != 0;
  double value;
  if (exponent == all_ones && type.has_infinity) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == all_ones && mantissa == (uint64_t{1} << m) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();  // e4m3: only S.1111.111
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - type.bias() - m);
  } else {
    value =
        std::ldexp(static_cast<double>(mantissa | (uint64_t{1} << m)), exponent - type.bias() - m);
  }
  return negative ? -value : value;
}

uint64_t encode(const NumberType& type, double value) {
  const int m = type.mantissa_bits;
  const uint64_t all_ones = (uint64_t{1} << type.exponent_bits) - 1;
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (m + type.exponent_bits) : 0;
  const uint64_t nan = (all_ones << m) | ((uint64_t{1} << m) - 1);
  const uint64_t largest = type.has_infinity ? (all_ones << m) - 1 : nan - 1;
  const uint64_t overflow = type.has_infinity ? all_ones << m : largest;
  if (std::isnan(value)) return sign | nan;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | overflow;
  if (magnitude == 0) return sign;
  // `units` counts units of the last place of the value's binade (at least the subnormals' binade).
  // After rounding it is a small integer. Adding it to the exponent field lets a carry move up by
  // itself.
  const int exponent = std::max(std::ilogb(magnitude), 1 - type.bias());
  const double units = std::nearbyint(std::ldexp(magnitude, m - exponent));  // ties to even
  const uint64_t biased = static_cast<uint64_t>(exponent + type.bias() - 1);
  const uint64_t bits = (biased << m) + static_cast<uint64_t>(units);
  return sign | (bits > largest ? overflow : bits);
}

bool is_finite(const NumberType& type, uint64_t bits) { return std::isfinite(decode(type, bits)); }

int64_t sign_extend(const NumberType& type, uint64_t bits) {
  const int unused = static_cast<int>(64 - 8 * type.bytes);
  return static_cast<int64_t>(bits << unused) >> unused;
}

uint64_t load(const NumberType& type, const void* from) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t bits = 0;
  std::memcpy(&bits, from, type.bytes);
  return bits;
}

void store(const NumberType& type, uint64_t bits, void* to) { std::memcpy(to, &bits, type.bytes); }

}  // namespace weft::test
