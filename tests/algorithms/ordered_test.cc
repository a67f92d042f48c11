// Rings and chains in any order of the ranks.
#include "algorithms/generators/ordered.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "src/schedule/verify.h"
#include "tests/schedule/random_order_run.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kRings[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};

std::vector<int> any_order(int n, uint64_t seed) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

TEST(OrderedRings, AreProvedAndRightInAnyOrderAndDirection) {
  uint64_t runs = 0;
  for (const int n : {2, 3, 4, 7, 8})
    for (const CollectiveKind kind : kRings)
      for (const bool both : {false, true})
        for (const bool in_place : {false, true}) {
          const uint64_t seed = mix(test_seed(), runs++);
          Collective c{kind, n, 0};
          if (c.rooted()) c.root = static_cast<int>(seed % static_cast<uint64_t>(n));
          const Schedule schedule = ordered_ring(c, any_order(n, seed), both);
          const VerifiedSchedule verified = verify(schedule, in_place);
          EXPECT_EQ(simulate(verified, {2, false, seed}), "") << name(kind) << n;
          EXPECT_EQ(simulate(verified, {2, true, seed}), "") << name(kind) << n;
        }
}

TEST(OrderedRings, TalkOnlyToNeighbours) {
  const std::vector<int> order = {0, 3, 1, 4, 2};
  const Schedule schedule = ordered_ring({CollectiveKind::kAllReduce, 5, 0}, order, true);
  for (size_t place = 0; place < order.size(); place++)
    for (const Lane& lane : schedule.ranks[static_cast<size_t>(order[place])].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to)
          if (to.kind == Operand::Kind::kPeer)
            EXPECT_TRUE(to.index == order[(place + 1) % 5] || to.index == order[(place + 4) % 5]);
}

TEST(OrderedChains, AreProvedAndRightInAnyOrder) {
  for (const int n : {2, 3, 5, 8})
    for (const bool in_place : {false, true}) {
      const uint64_t seed = mix(test_seed(), static_cast<uint64_t>(n));
      const VerifiedSchedule verified = verify(ordered_chain(any_order(n, seed)), in_place);
      EXPECT_EQ(simulate(verified, {2, false, seed}), "") << n;
    }
}

}  // namespace
}  // namespace weft::test
