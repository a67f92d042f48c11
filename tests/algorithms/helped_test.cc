// Schedules of ranks and of hosts that help: proved, and with the shares that keep every host
// equally busy.
#include "algorithms/generators/helped.h"

#include <gtest/gtest.h>

#include "src/schedule/verify.h"

namespace weft::test {
namespace {

// Chunks that a rank or helper sends.
double share_sent(const Schedule& schedule, int rank) {
  int chunks = 0;
  for (const Lane& lane : schedule.ranks[static_cast<size_t>(rank)].lanes)
    for (const Step& step : lane.steps)
      for (const Operand& to : step.to)
        if (to.kind == Operand::Kind::kPeer) chunks += step.count;
  return static_cast<double>(chunks) / schedule.chunks;
}

// A stream that runs ahead leaves others behind, which the same sum needs.
TEST(Helped, RanksWaitForTheSumOfASliceBeforeTheySendTheNext) {
  const Schedule schedule = make_helped(4, 2);
  for (int r = 0; r < 4; r++)
    for (const Lane& lane : schedule.ranks[static_cast<size_t>(r)].lanes) {
      if (lane.steps.size() == 1) continue;  // sums
      ASSERT_EQ(lane.steps.size(), 2u);
      EXPECT_EQ(lane.steps[0].to[0].index, lane.steps[1].from[0].index);
    }
}

TEST(Helped, SchedulesAreProved) {
  for (int n = 2; n <= 9; n++)
    for (int k = 1; k <= std::min(n, kMostCpuNodes); k++)
      for (const bool in_place : {false, true}) {
        const auto proved = verify(make_helped(n, k), in_place);
        EXPECT_EQ(proved.schedule().cpu_nodes, k);
        EXPECT_FALSE(proved.uniform_only());
      }
}

// Inputs are encoded once, and sums are.
TEST(Helped, CodedSchedulesAreProvedAndCodeEveryMessage) {
  for (const char* codec : {"int8", "int4:block=64", "fp8"})
    for (int n = 2; n <= 5; n++)
      for (int k = 1; k <= n; k++)
        for (const bool in_place : {false, true}) {
          const auto proved = verify(make_helped(n, k, parse_codec_spec(codec)), in_place);
          EXPECT_EQ(proved.passes(), 2) << n << ' ' << k;
          for (const RankSchedule& rank : proved.schedule().ranks)
            for (const Lane& lane : rank.lanes)
              for (const Step& step : lane.steps)
                for (const auto* operands : {&step.from, &step.to})
                  for (const Operand& operand : *operands)
                    if (operand.kind == Operand::Kind::kPeer) {
                      ASSERT_EQ(operand.codec, 1);
                    }
        }
}

TEST(Helped, SharesAddUpAndKeepEveryHostEquallyBusy) {
  for (int n = 2; n <= 16; n++)
    for (int k = 1; k <= std::min(n, kMostCpuNodes); k++) {
      const HelpedShares shares = helped_shares(n, k);
      EXPECT_EQ(n * shares.rank + k * shares.helper, shares.chunks);
      const double d = n * n + k * n - 2 * k;
      EXPECT_NEAR(static_cast<double>(shares.helper) / shares.chunks, 2 * (n - 1) / d, 1e-12);
      EXPECT_NEAR(static_cast<double>(shares.rank) / shares.chunks, (n - k) / d, 1e-12);
      const Schedule schedule = make_helped(n, k);
      EXPECT_NEAR(share_sent(schedule, 0), share_sent(schedule, n), 1e-12) << n << " ranks, " << k;
      // Without helpers a rank sends 2(n-1)/n of the array. Two ranks gain nothing.
      if (n > 2) EXPECT_LT(share_sent(schedule, 0), 2.0 * (n - 1) / n);
    }
  EXPECT_NEAR(share_sent(make_helped(4, 4), 0), 1, 1e-12) << "the shares allow 1.5 times the speed";
}

}  // namespace
}  // namespace weft::test
