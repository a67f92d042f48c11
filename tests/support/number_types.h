// NCCL's twelve element types as bit patterns, encoded and decoded independently of the library
// under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nccl.h"

namespace weft::test {

// The properties of one element type. For integers only name, bytes and is_signed matter.
struct NumberType {
  ncclDataType_t id;
  const char* name;
  size_t bytes;
  bool is_float;
  bool is_signed;
  int mantissa_bits;  // stored bits
  int exponent_bits;
  bool has_infinity;  // fp8 e4m3 has none: its largest value is 448

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // Integers up to this magnitude are exact.
  double exact_integer_limit() const {
    return static_cast<double>(uint64_t{1} << (mantissa_bits + 1));
  }
  // Half a unit in the last place, relative. Rounding once has at most this error.
  double unit_roundoff() const { return 1.0 / exact_integer_limit(); }
  uint64_t mask() const { return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1; }
};

const std::vector<NumberType>& all_types();
const NumberType& type_of(ncclDataType_t id);

// The value of a floating-point bit pattern. Exact for every type.
double decode(const NumberType& type, uint64_t bits);
// The nearest bit pattern, ties to even. Overflow gives infinity, or 448 (the neighbour of NaN) if
// the type has no infinity.
uint64_t encode(const NumberType& type, double value);

bool is_finite(const NumberType& type, uint64_t bits);

// The low `bytes` bits as a signed number.
int64_t sign_extend(const NumberType& type, uint64_t bits);

uint64_t load(const NumberType& type, const void* from);
void store(const NumberType& type, uint64_t bits, void* to);

}  // namespace weft::test
