// NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK decide which ranks test together.
#pragma once

#include <cstdint>

namespace weft::perf {

// Splits the job into groups by a rule on the rank. Without a rule there is one group.
class Split {
 public:
  // Throws UsageError when a variable cannot be read.
  static Split from_environment();

  bool active() const { return kind_ != Kind::kNone; }
  int colour(int rank) const;
  // The number of ranks below `rank` with its colour, and of all ranks with its colour.
  int rank_in_group(int rank) const;
  int group_size(int rank, int nranks) const;
  // The size of the smallest group of a job.
  int smallest_group(int nranks) const;

 private:
  enum class Kind { kNone, kAnd, kOr, kMod, kDiv };
  Kind kind_ = Kind::kNone;
  uint32_t value_ = 0;
};

}  // namespace weft::perf
