// Counts above 2^31 elements. Needs about 13 GB of memory, so it runs only with WEFT_TEST_LARGE=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr size_t kCount = (size_t{1} << 31) + 5;
constexpr auto kLimit = std::chrono::minutes(10);

class MoreThanTwoToThe31 : public testing::Test {
 protected:
  void SetUp() override {
    const char* wanted = std::getenv("WEFT_TEST_LARGE");
    if (wanted == nullptr || std::strcmp(wanted, "1") != 0) {
      WEFT_SKIP("large", "needs about 13 GB of memory; WEFT_TEST_LARGE=1 runs it");
    }
  }
};

// Cheap to compute, and different at indices that are 2^32, 2^31 or 2^16 apart.
signed char value(size_t i) {
  return static_cast<signed char>((i + (i >> 16) * 3 + (i >> 31) * 7) % 31);
}

struct Free {
  void operator()(signed char* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<signed char, Free>;
Bytes allocate() { return Bytes(static_cast<signed char*>(std::malloc(kCount))); }

size_t first_difference(const signed char* got, int factor) {
  for (size_t i = 0; i < kCount; ++i) {
    if (got[i] != static_cast<signed char>(value(i) * factor)) return i;
  }
  return kCount;
}

TEST_F(MoreThanTwoToThe31, ElementsAreBroadcast) {
  run_ranks_as_threads(
      2,
      [](int rank, ncclComm_t comm) {
        const Bytes buffer = allocate();
        ASSERT_TRUE(buffer);
        for (size_t i = 0; i < kCount; ++i) buffer.get()[i] = rank == 0 ? value(i) : 99;
        WEFT_OK(ncclBroadcast(buffer.get(), buffer.get(), kCount, ncclInt8, 0, comm, nullptr));
        EXPECT_EQ(first_difference(buffer.get(), 1), kCount);
      },
      kLimit);
}

TEST_F(MoreThanTwoToThe31, ElementsAreSummed) {
  run_ranks_as_threads(
      2,
      [](int rank, ncclComm_t comm) {
        const Bytes in = allocate();
        const Bytes out = allocate();
        ASSERT_TRUE(in && out);
        for (size_t i = 0; i < kCount; ++i)
          in.get()[i] = static_cast<signed char>(value(i) * (rank + 1));
        std::memset(out.get(), 99, kCount);
        WEFT_OK(ncclAllReduce(in.get(), out.get(), kCount, ncclInt8, ncclSum, comm, nullptr));
        EXPECT_EQ(first_difference(out.get(), 3), kCount);
      },
      kLimit);
}

}  // namespace
}  // namespace weft::test
