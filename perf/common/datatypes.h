// The element types and reduction operators of the perf programs: names, sizes, encodings.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "nccl.h"

namespace weft::perf {

struct DataType {
  const char* name;
  size_t size;
  bool is_float;
  bool is_signed;
  // Every integer from 0 to this is exact (capped at 2^20, which is enough here).
  int exact;
  // Distance from 1 to the next value, 0 for integers.
  double epsilon;
};

const DataType& data_type(ncclDataType_t type);
std::optional<ncclDataType_t> find_data_type(const std::string& name);

// Rounds to nearest, ties to even. Integers truncate.
void encode(ncclDataType_t type, double value, std::byte* out);
double decode(ncclDataType_t type, const std::byte* in);

// kNone is for collectives that only move data. kMulSum is sum after multiplying by a scalar.
enum class Op { kSum, kProd, kMin, kMax, kAvg, kMulSum, kNone };

const char* op_name(Op op);
std::optional<Op> find_op(const std::string& name);
// The operator to pass to the library. kMulSum has none before ncclRedOpCreatePreMulSum.
ncclRedOp_t builtin_op(Op op);

}  // namespace weft::perf
