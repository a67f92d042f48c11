// A proof is fast enough for every start of a communicator.
#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/schedule/verify.h"
#include "tests/support/cpu_time.h"

namespace weft::test {
namespace {

#ifdef WEFT_TEST_SANITIZED
constexpr double kPatience = 15;
#else
constexpr double kPatience = 1;
#endif

double seconds(Schedule schedule, bool in_place) {
  const double start = cpu_seconds();
  verify(std::move(schedule), in_place);
  return cpu_seconds() - start;
}

// Every lane runs `rounds` rings one after the other. Lanes run in parallel.
Schedule long_rings(int n, int lanes, int rounds) {
  Schedule s = blank("long", {CollectiveKind::kAllReduce, n, 0}, n * lanes * rounds, lanes);
  for (int r = 0; r < n; r++)
    for (int l = 0; l < lanes; l++) {
      Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[static_cast<size_t>(l)];
      const Operand next = Operand::peer(wrap(r + 1, n), l),
                    previous = Operand::peer(wrap(r - 1, n), l);
      for (int k = 0; k < rounds; k++) {
        const auto at = [&](int c) { return (l * rounds + k) * n + wrap(c, n); };
        add(lane, {Operand::input(at(r))}, {next});
        for (int i = 1; i < n - 1; i++) add(lane, {previous, Operand::input(at(r - i))}, {next});
        add(lane, {previous, Operand::input(at(r + 1))}, {Operand::output(at(r + 1)), next});
        for (int i = 0; i < n - 2; i++) add(lane, {previous}, {Operand::output(at(r - i)), next});
        add(lane, {previous}, {Operand::output(at(r + 2))});
      }
    }
  return s;
}

TEST(VerifySpeed, LanesOfFourThousandStepsOn32RanksTakeLessThanASecond) {
  Schedule s = long_rings(32, 4, 64);
  ASSERT_GT(s.ranks[0].lanes[0].steps.size(), 4000u);
  const double taken = seconds(std::move(s), true);
  RecordProperty("milliseconds", static_cast<int>(taken * 1000));
  EXPECT_TRUE(in_time(taken, 1.0 * kPatience)) << taken;
}

TEST(VerifySpeed, AThousandRanksTakeSeconds) {
#ifdef WEFT_TEST_SANITIZED
  GTEST_SKIP() << "two million steps are too many under a sanitizer";
#endif
  for (const Generator* generator : {&kRing, &kRecursive, &kTree}) {
    const double taken =
        seconds(generator->make({CollectiveKind::kAllReduce, 1024, 0}, true), true);
    EXPECT_TRUE(in_time(taken, 5)) << generator->name << ' ' << taken;
  }
}

}  // namespace
}  // namespace weft::test
