// The input and the expected result of every rank of a case.
#pragma once

#include <vector>

#include "tests/support/case.h"

namespace weft::test {

// Elements of `rank`'s input and result. 0 if the rank has none, such as a non-root of Scatter.
size_t input_count(const Case& c, int rank, int nranks);
size_t result_count(const Case& c, int rank, int nranks);

// The bytes of `rank`'s input.
std::vector<char> input_bytes(const Case& c, int rank, int nranks);
// The bytes of `rank`'s result.
std::vector<char> result_bytes(const Case& c, int rank, int nranks);

// Data repeat with this period (a prime number of elements), so that large cases are cheap to make.
inline constexpr size_t kPeriod = 1021;

// All ranks' inputs to element `index` of a reduction of this case.
std::vector<uint64_t> column_at(const Case& c, int nranks, size_t index);

}  // namespace weft::test
