// Results with arbitrary floats are near the exact result, bitwise the same on all ranks, and the
// same in a second run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/number_types.h"
#include "tests/support/reference.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

struct Setting {
  int nranks;
  size_t count;
};

class Rounding : public testing::TestWithParam<Setting> {};

// Values between -1 and 1 that use every mantissa bit.
uint64_t random_float(const NumberType& type, uint64_t seed, int rank, size_t i) {
  const double unit =
      std::ldexp(static_cast<double>(mix(seed, static_cast<uint64_t>(rank), i) >> 11), -52);
  return encode(type, unit - 1.0);
}

TEST_P(Rounding, IsSmallAndTheSameOnAllRanksAndFromRunToRun) {
  const auto [n, count] = GetParam();
  const uint64_t seed = mix(test_seed(), 5);
  for (const NumberType& type : all_types()) {
    if (!type.is_float) continue;
    const size_t bytes = count * type.bytes;
    std::vector<std::vector<char>> first(static_cast<size_t>(n), std::vector<char>(bytes));
    auto second = first;
    run_ranks_as_threads(n, [&, n = n, count = count](int rank, ncclComm_t comm) {
      std::vector<char> in(bytes);
      for (size_t i = 0; i < count; ++i) {
        store(type, random_float(type, seed, rank, i), in.data() + i * type.bytes);
      }
      const auto me = static_cast<size_t>(rank);
      WEFT_OK(ncclAllReduce(in.data(), first[me].data(), count, type.id, ncclSum, comm, nullptr));
      WEFT_OK(ncclAllReduce(in.data(), second[me].data(), count, type.id, ncclSum, comm, nullptr));
    });
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      EXPECT_EQ(first[r], first[0]) << type.name << ": rank " << r << " has other bits than rank 0";
      EXPECT_EQ(first[r], second[r])
          << type.name << ": rank " << r << " has other bits on a second run";
    }
    for (size_t i = 0; i < count; ++i) {
      std::vector<uint64_t> column;
      for (int r = 0; r < n; ++r) column.push_back(random_float(type, seed, r, i));
      const uint64_t got = load(type, first[0].data() + i * type.bytes);
      ASSERT_TRUE(close_enough(type, Reduction::kSum, column, got))
          << type.name << " element " << i << ": " << decode(type, got) << ", expected about "
          << decode(type, reduce_column(type, Reduction::kSum, column));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sums, Rounding,
                         testing::Values(Setting{2, 1000}, Setting{3, 5000}, Setting{5, 17},
                                         Setting{7, 4099}, Setting{8, 8192}, Setting{16, 1023}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.nranks) + "ranks" +
                                  std::to_string(tested.param.count);
                         });

TEST(SpecialValues, NanSpreadsAndInfinityStays) {
  run_ranks_as_threads(3, [](int rank, ncclComm_t comm) {
    const float in[4] = {rank == 1 ? NAN : 1.0f, rank == 2 ? INFINITY : 1.0f, -INFINITY, 2.0f};
    float out[4] = {};
    WEFT_OK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], INFINITY);
    EXPECT_EQ(out[2], -INFINITY);
    EXPECT_EQ(out[3], 6.0f);
  });
}

TEST(SpecialValues, BroadcastKeepsTheBitsOfNans) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    const uint32_t pattern = 0x7fa12345;
    uint32_t value = rank == 0 ? pattern : 0;
    WEFT_OK(ncclBroadcast(&value, &value, 1, ncclFloat32, 0, comm, nullptr));
    EXPECT_EQ(value, pattern);
  });
}

}  // namespace
}  // namespace weft::test
