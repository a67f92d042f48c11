// The data of a run: the input of every rank, and its reduction, exact in every type.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/common/datatypes.h"

namespace weft::perf {

// Inputs repeat after this many elements. It is a prime. Offsets in schedules have small factors,
// so a chunk moved to a wrong place never finds the same values there.
inline constexpr size_t kPeriod = 16381;

using Tile = std::span<const std::byte>;  // kPeriod encoded elements

// The factor that a rank multiplies its input with under Op::kMulSum.
inline double mulsum_scalar(int rank) { return 1.0 + rank % 2; }

// Immutable once built. Any thread may read it.
class Patterns {
 public:
  Patterns(ncclDataType_t type, Op op, int nranks);

  Tile input(int rank) const { return inputs_[static_cast<size_t>(rank)]; }
  Tile reduced() const { return reduced_; }
  // The relative error that a correct result may have. 0 means bitwise equal.
  double tolerance() const { return tolerance_; }

 private:
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::byte> reduced_;
  double tolerance_ = 0;
};

}  // namespace weft::perf
