// weave() makes correct schedules from any transfers that an engine may choose.
#include "algorithms/synth/weave/weave.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "tests/algorithms/synth/random_routing.h"
#include "tests/schedule/random_order_run.h"

namespace weft::test {
namespace {

class Weaving : public testing::TestWithParam<CollectiveKind> {};

TEST_P(Weaving, GivesSchedulesThatVerifyAndDoTheRightThingInAnyOrder) {
  const uint64_t seed = test_seed();
  Random random(seed);
  for (int i = 0; i < 30; i++) {
    Collective c{GetParam(), 2 + static_cast<int>(random.below(7)), 0};
    if (c.rooted()) c.root = static_cast<int>(random.below(static_cast<uint64_t>(c.nranks)));
    const int chunks = 1 + static_cast<int>(random.below(4));
    const Routing routing = random_routing(c, chunks, i % 2 == 1, random);
    WeaveOptions options;
    options.fuse = i % 3 != 0;
    options.ports = i % 2 == 0;
    options.by_hops = i % 7 == 1;
    options.instances = i % 7 == 2 ? 3 : 1;
    const Schedule schedule = weave(routing, options);
    for (const bool in_place : {false, true}) {
      // In place, data would be overwritten before it is sent.
      if (in_place && c.kind == CollectiveKind::kAllToAll) continue;
      SCOPED_TRACE(fmt::format("seed {} case {} ranks {} root {} chunks {}{}", seed, i, c.nranks,
                               c.root, chunks, in_place ? " in place" : ""));
      const VerifiedSchedule verified = verify(schedule, in_place, kWovenFifoDepth);
      EXPECT_EQ(simulate(verified, {kWovenFifoDepth, false, mix(seed, static_cast<uint64_t>(i))}),
                "");
      EXPECT_EQ(simulate(verified, {kWovenFifoDepth, true, mix(seed, static_cast<uint64_t>(i))}),
                "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Weaving,
                         testing::Values(CollectiveKind::kAllReduce, CollectiveKind::kReduce,
                                         CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
                                         CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                         CollectiveKind::kGather, CollectiveKind::kScatter),
                         [](const auto& tested) { return std::string(name(tested.param)); });

Routing ring_gather(int n) {
  Routing routing{{CollectiveKind::kAllGather, n, 0}, 1, {}, {}};
  for (int r = 0; r < n; r++)
    for (int k = 0; k + 1 < n; k++)
      routing.transfers.push_back(
          {r, (r + k) % n, (r + k + 1) % n, {(r + k) % n}, static_cast<double>(k)});
  return routing;
}

TEST(Weave, MakesOneLanePerRankOfARing) {
  const Schedule schedule = weave(ring_gather(5));
  for (const RankSchedule& rank : schedule.ranks) {
    ASSERT_EQ(rank.lanes.size(), 1u);
    EXPECT_EQ(rank.scratch_chunks, 0);
    EXPECT_EQ(rank.lanes[0].steps.size(), 5u);
    for (size_t s = 1; s < 4; s++) EXPECT_EQ(rank.lanes[0].steps[s].to.size(), 2u);
  }
}

TEST(Weave, GivesEveryPathBetweenTwoRanksItsOwnChannelAndSaysWhichItIs) {
  Routing routing{{CollectiveKind::kBroadcast, 2, 0}, 2, {}, {}};
  routing.transfers = {{0, 0, 1, {3, 4}, 0}, {1, 0, 1, {5}, 0}};
  const Schedule schedule = weave(routing);
  ASSERT_EQ(schedule.routes.size(), 2u);
  EXPECT_EQ(schedule.routes[0], (RouteHint{0, 1, 0, {3, 4}}));
  EXPECT_EQ(schedule.routes[1], (RouteHint{0, 1, 1, {5}}));
  routing.collective.kind = CollectiveKind::kReduce;
  EXPECT_EQ(weave(routing).routes[0], (RouteHint{1, 0, 0, {4, 3}}));
}

TEST(Weave, SendsNeighbouringPiecesOfOneTimeAsOneMessage) {
  Routing routing{{CollectiveKind::kBroadcast, 3, 0}, 4, {}, {}};
  for (int p = 0; p < 4; p++) {
    routing.transfers.push_back({p, 0, 1, {0}, p < 3 ? 1.0 : 2.0});
    routing.transfers.push_back({p, 1, 2, {1}, p < 3 ? 3.0 : 4.0});
  }
  const Schedule schedule = weave(routing);
  ASSERT_EQ(schedule.ranks[1].lanes.size(), 1u);
  ASSERT_EQ(schedule.ranks[1].lanes[0].steps.size(), 2u);
  EXPECT_EQ(schedule.ranks[1].lanes[0].steps[0].count, 3);
  EXPECT_EQ(schedule.ranks[1].lanes[0].steps[1].count, 1);
}

TEST(Weave, GivesEveryInstanceFifosAndLanesOfItsOwn) {
  Routing routing{{CollectiveKind::kBroadcast, 2, 0}, 4, {}, {}};
  for (int p = 0; p < 4; p++) routing.transfers.push_back({p, 0, 1, {0}, 0.0});
  WeaveOptions options;
  options.fuse = false;
  options.ports = true;
  EXPECT_EQ(weave(routing, options).routes.size(), 1u);
  options.instances = 2;
  const Schedule schedule = weave(routing, options);
  EXPECT_EQ(schedule.routes.size(), 2u);
  ASSERT_EQ(schedule.ranks[1].lanes.size(), 2u);
  EXPECT_EQ(schedule.ranks[1].lanes[0].steps.size(), 2u);
}

TEST(Weave, RefusesTransfersThatNoScheduleCanFollow) {
  const auto refused = [](std::vector<Transfer> transfers) {
    try {
      weave({{CollectiveKind::kBroadcast, 3, 0}, 1, std::move(transfers), {}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({{0, 1, 2, {}, 0}, {0, 0, 1, {}, 1}}),
            "rank 1 sends piece 0 on to rank 2 before it has it");
  EXPECT_EQ(refused({{0, 0, 1, {}, 0}, {0, 2, 1, {}, 1}, {0, 0, 2, {}, 0}}),
            "piece 0 comes to rank 1 twice");
  EXPECT_EQ(refused({{0, 1, 2, {}, 0}, {0, 2, 1, {}, 0}}),
            "rank 2 sends piece 0 on to rank 1 before it has it");
  EXPECT_EQ(refused({{0, 0, 3, {}, 0}}), "a transfer of piece 0 from rank 0 to rank 3 of 3");
}

}  // namespace
}  // namespace weft::test
