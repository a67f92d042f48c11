// Tables of types and operators; software conversion of the 8- and 16-bit floats.
#include "perf/common/datatypes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace weft::perf {
namespace {

constexpr int kMultiConnection = 1 << 20;

// In the order of ncclDataType_t.
constexpr DataType kTypes[ncclNumTypes] = {
    {"int8", 1, false, true, 127, 0},
    {"uint8", 1, false, false, 255, 0},
    {"int32", 4, false, true, kMultiConnection, 0},
    {"uint32", 4, false, false, kMultiConnection, 0},
    {"int64", 8, false, true, kMultiConnection, 0},
    {"uint64", 8, false, false, kMultiConnection, 0},
    {"half", 2, true, true, 2048, 0x1p-10},
    {"float", 4, true, true, kMultiConnection, 0x1p-23},
    {"double", 8, true, true, kMultiConnection, 0x1p-52},
    {"bfloat16", 2, true, true, 256, 0x1p-7},
    {"f8e4m3", 1, true, true, 16, 0x1p-3},
    {"f8e5m2", 1, true, true, 8, 0x1p-2},
};

constexpr const char* kOps[] = {"sum", "prod", "min", "max", "avg", "mulsum", "none"};

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

SmallFloat small_float(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return {5, 10};
    case ncclBfloat16:
      return {8, 7};
    case ncclFloat8e4m3:
      return {4, 3};
    default:
      return {5, 2};
  }
}

// Only for finite values in range: the inputs of the perf programs never overflow.
uint32_t encode_small(SmallFloat f, double value) {
  const uint32_t sign = (std::signbit(value) ? 1u : 0u) << (f.exponent_bits + f.mantissa_bits);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  const auto significand =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent)));
  // The leading one of a normal number carries into the exponent field, as rounding up can.
  const auto below = static_cast<uint32_t>(exponent + f.bias() - 1);
  return sign | ((below << f.mantissa_bits) + significand);
}

double decode_small(SmallFloat f, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const bool negative = (bits >> (f.exponent_bits + f.mantissa_bits)) & 1u;
  const uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << f.mantissa_bits);
  const int power = std::max<int>(static_cast<int>(exponent), 1) - f.bias() - f.mantissa_bits;
  const double magnitude = std::ldexp(significand, power);
  return negative ? -magnitude : magnitude;
}

template <typename T>
void store(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}

template <typename T>
double load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return static_cast<double>(value);
}

}  // namespace

const DataType& data_type(ncclDataType_t type) { return kTypes[type]; }

std::optional<ncclDataType_t> find_data_type(const std::string& name) {
  for (int i = 0; i < ncclNumTypes; ++i) {
    if (name == kTypes[i].name) return static_cast<ncclDataType_t>(i);
  }
  return std::nullopt;
}

void encode(ncclDataType_t type, double value, std::byte* out) {
  const auto whole = static_cast<int64_t>(value);
  if (type == ncclFloat32) return store(static_cast<float>(value), out);
  if (type == ncclFloat64) return store(value, out);
  const DataType& info = data_type(type);
  const uint64_t bits =
      info.is_float ? encode_small(small_float(type), value) : static_cast<uint64_t>(whole);
  switch (info.size) {
    case 1:
      return store(static_cast<uint8_t>(bits), out);
    case 2:
      return store(static_cast<uint16_t>(bits), out);
    case 4:
      return store(static_cast<uint32_t>(bits), out);
    default:
      return store(bits, out);
  }
}

double decode(ncclDataType_t type, const std::byte* in) {
  switch (type) {
    case ncclInt8:
      return load<int8_t>(in);
    case ncclUint8:
      return load<uint8_t>(in);
    case ncclInt32:
      return load<int32_t>(in);
    case ncclUint32:
      return load<uint32_t>(in);
    case ncclInt64:
      return load<int64_t>(in);
    case ncclUint64:
      return load<uint64_t>(in);
    case ncclFloat32:
      return load<float>(in);
    case ncclFloat64:
      return load<double>(in);
    case ncclFloat16:
    case ncclBfloat16:
      return decode_small(small_float(type), static_cast<uint32_t>(load<uint16_t>(in)));
    default:
      return decode_small(small_float(type), static_cast<uint32_t>(load<uint8_t>(in)));
  }
}

const char* op_name(Op op) { return kOps[static_cast<int>(op)]; }

std::optional<Op> find_op(const std::string& name) {
  for (int i = 0; i < static_cast<int>(Op::kNone); ++i) {
    if (name == kOps[i]) return static_cast<Op>(i);
  }
  return std::nullopt;
}

ncclRedOp_t builtin_op(Op op) {
  switch (op) {
    case Op::kProd:
      return ncclProd;
    case Op::kMin:
      return ncclMin;
    case Op::kMax:
      return ncclMax;
    case Op::kAvg:
      return ncclAvg;
    default:
      return ncclSum;
  }
}

}  // namespace weft::perf
