// What `auto` decides by times: the faster way, and what was decided before unless it is slower.
#include "src/planner/compression_scope.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr CompressionScope kUncompressed{CodedLinks::kNone, kCompressFrom};
constexpr CompressionScope kCompressed{CodedLinks::kBetweenHosts, kCompressFrom};

// Milliseconds of 1 and 8 MiB.
CompressionTimes times_of(TimeLine plain, TimeLine machines, TimeLine hosts) {
  return {plain, machines, hosts};
}

TEST(CompressionScope, IsThatOfTheFasterLinks) {
  EXPECT_EQ(decide(times_of({4, 27}, {}, {2, 8}), nullptr), kCompressed);
  EXPECT_EQ(decide(times_of({4, 27}, {}, {8, 54}), nullptr), kUncompressed);
  EXPECT_EQ(decide(times_of({4, 27}, {}, {4, 26.5}), nullptr), kUncompressed)
      << "not worth its errors";
  EXPECT_EQ(decide(times_of({4, 27}, {2, 7}, {2, 8}), nullptr).links, CodedLinks::kBetweenMachines);
  EXPECT_EQ(decide(times_of({4, 27}, {2, 9}, {2, 8}), nullptr).links, CodedLinks::kBetweenHosts);
  EXPECT_EQ(decide(times_of({4, 27}, {}, {}), nullptr), kUncompressed) << "nothing was measured";
}

TEST(CompressionScope, BeginsWhereItIsFaster) {
  // Compressed calls take 4 ms and a third of the time per byte.
  const CompressionScope scope = decide(times_of({3, 24}, {}, {5, 12}), nullptr);
  EXPECT_EQ(scope.links, CodedLinks::kBetweenHosts);
  EXPECT_EQ(scope.from, size_t{4} << 20);
}

TEST(CompressionScope, StaysAsItWasWhileNothingElseIsClearlyFaster) {
  const CompressionTimes equal = times_of({4, 27}, {}, {4, 26});
  EXPECT_EQ(decide(equal, &kCompressed), kCompressed);
  EXPECT_EQ(decide(equal, &kUncompressed), kUncompressed);
  const CompressionTimes better = times_of({4, 27}, {}, {3.5, 25});
  EXPECT_EQ(decide(better, nullptr), kCompressed);
  EXPECT_EQ(decide(better, &kUncompressed), kUncompressed);
  EXPECT_EQ(decide(times_of({4, 27}, {}, {3, 20}), &kUncompressed), kCompressed);
  EXPECT_EQ(decide(times_of({4, 27}, {}, {5, 33}), &kCompressed), kUncompressed);
  // Ranks were on several machines before.
  const CompressionScope far{CodedLinks::kBetweenMachines, kCompressFrom};
  EXPECT_EQ(decide(times_of({4, 27}, {}, {2, 8}), &far), kCompressed);
}

// Whatever was measured and decided before.
TEST(CompressionScope, IsNeverMuchSlowerThanAnotherWay) {
  Random random(test_seed());
  const auto time = [&] { return 1.0 + static_cast<double>(random.below(1000)) / 100; };
  for (int i = 0; i < test_samples(20000); i++) {
    CompressionTimes times;
    for (TimeLine& line : times) {
      line.small = time();
      line.large = line.small + time();
    }
    if (random.below(2) == 0) times[1] = {};
    const CompressionScope before{static_cast<CodedLinks>(random.below(3)),
                                  kCompressFrom << random.below(4)};
    const CompressionScope scope = decide(times, random.below(2) == 0 ? &before : nullptr);
    const double mine = times[static_cast<size_t>(scope.links)].large;
    double best = times[0].large;
    for (const TimeLine& line : times)
      if (line.large > 0) best = std::min(best, line.large);
    ASSERT_GT(mine, 0) << i;
    ASSERT_LE(mine, best / 0.9 + 1e-9) << i;
    // Where it begins it is not slower either.
    if (scope.links != CodedLinks::kNone) {
      ASSERT_LE(times[static_cast<size_t>(scope.links)].at(scope.from),
                1.1 * times[0].at(scope.from))
          << i;
    }
  }
}

TEST(CompressionScope, IsWrittenAndRead) {
  CompressionScopes scopes;
  scopes[0] = {CodedLinks::kBetweenMachines, size_t{4} << 20};
  scopes[1] = kUncompressed;
  EXPECT_EQ(parse_scopes(write_scopes(scopes)), scopes);
  for (const char* wrong : {"", "all_reduce hosts 1048576\n", "all_reduce moon 1048576\n", "x"})
    EXPECT_THROW(parse_scopes(wrong), Error) << wrong;
  EXPECT_THROW(parse_scopes(write_scopes(scopes) + "more\n"), Error);
}

}  // namespace
}  // namespace weft::test
