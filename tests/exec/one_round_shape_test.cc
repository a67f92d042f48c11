// The shape of programs that need no interpreter, and the programs that ranks run in step.
#include "src/exec/one_round_shape.h"

#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "src/schedule/lower.h"
#include "src/schedule/verify.h"

namespace weft {
namespace {

Program program_of(const Generator& generator, const Collective& collective, int rank) {
  return lower(verify(generator.make(collective, false), false), rank);
}

uint32_t everyone_but(int rank, int n) { return ((uint32_t{1} << n) - 1) & ~(uint32_t{1} << rank); }

TEST(OneRoundShape, OfACollectiveInWhichAllSendToAll) {
  for (const int n : {2, 3, 8}) {
    for (int rank = 0; rank < n; rank++) {
      const auto gather =
          one_round_shape(program_of(kOneRound, {CollectiveKind::kAllGather, n, 0}, rank));
      ASSERT_TRUE(gather.has_value()) << n;
      EXPECT_EQ(gather->send_to, everyone_but(rank, n));
      EXPECT_EQ(gather->receive_from, everyone_but(rank, n));
      EXPECT_EQ(gather->send_step, 0);
      for (int peer = 0; peer < n; peer++)
        if (peer != rank) {
          EXPECT_EQ(gather->receive_base + peer * gather->receive_step, peer);
        }
      EXPECT_TRUE(gather->copies_own);
      EXPECT_EQ(gather->own_to, rank);
      EXPECT_FALSE(gather->reduces);

      const auto scatter =
          one_round_shape(program_of(kOneRound, {CollectiveKind::kReduceScatter, n, 0}, rank));
      ASSERT_TRUE(scatter.has_value()) << n;
      EXPECT_TRUE(scatter->reduces && scatter->sums_own && !scatter->copies_own);
      EXPECT_EQ(scatter->own_from, rank);
      for (int peer = 0; peer < n; peer++)
        if (peer != rank) {
          EXPECT_EQ(scatter->send_base + peer * scatter->send_step, peer);
        }

      const auto sum =
          one_round_shape(program_of(kOneShot, {CollectiveKind::kAllReduce, n, 0}, rank));
      ASSERT_TRUE(sum.has_value()) << n;
      EXPECT_EQ(sum->receive_from, everyone_but(rank, n));
      EXPECT_TRUE(sum->reduces && sum->sums_own);
    }
  }
}

TEST(OneRoundShape, OfACollectiveWithARoot) {
  const int n = 5, root = 3;
  for (int rank = 0; rank < n; rank++) {
    const auto broadcast =
        one_round_shape(program_of(kOneRound, {CollectiveKind::kBroadcast, n, root}, rank));
    ASSERT_TRUE(broadcast.has_value());
    EXPECT_EQ(broadcast->send_to, rank == root ? everyone_but(root, n) : 0u);
    EXPECT_EQ(broadcast->receive_from, rank == root ? 0u : uint32_t{1} << root);
    const auto reduce =
        one_round_shape(program_of(kOneRound, {CollectiveKind::kReduce, n, root}, rank));
    ASSERT_TRUE(reduce.has_value());
    EXPECT_EQ(reduce->reduces, rank == root);
    EXPECT_EQ(reduce->send_to, rank == root ? 0u : uint32_t{1} << root);
  }
}

TEST(OneRoundShape, IsNotThatOfTwoPhasesOrOfTooManyRanks) {
  EXPECT_FALSE(one_round_shape(program_of(kOneRound, {CollectiveKind::kAllReduce, 4, 0}, 1)));
  EXPECT_FALSE(one_round_shape(program_of(kRing, {CollectiveKind::kAllGather, 4, 0}, 1)));
  EXPECT_FALSE(one_round_shape(program_of(kOneRound, {CollectiveKind::kAllGather, 40, 0}, 1)));
}

TEST(RanksInStep, DoTheSameWithNeighbouringChunks) {
  for (const int n : {2, 3, 8})
    for (const int rank : {0, n - 1}) {
      const auto in_step = [&](const Generator& generator, CollectiveKind kind) {
        return program_of(generator, {kind, n, n - 1}, rank).in_step;
      };
      EXPECT_TRUE(in_step(kSweep, CollectiveKind::kAllGather));
      EXPECT_TRUE(in_step(kSweep, CollectiveKind::kBroadcast));
      EXPECT_TRUE(in_step(kPeerMemory, CollectiveKind::kAllReduce));
      EXPECT_TRUE(in_step(kPeerMemory, CollectiveKind::kBroadcast));
      EXPECT_TRUE(in_step(kPeerMemory, CollectiveKind::kReduce));
      // Every rank has its own part, not one chunk in every n.
      EXPECT_FALSE(in_step(kPeerMemory, CollectiveKind::kAllGather));
      EXPECT_FALSE(in_step(kPeerMemory, CollectiveKind::kReduceScatter));
      EXPECT_FALSE(in_step(kPeerMemory, CollectiveKind::kAllToAll));
      // Other ranks cannot do work that goes through scratch memory or FIFOs.
      EXPECT_FALSE(in_step(kViaScratch, CollectiveKind::kAllReduce));
      EXPECT_FALSE(in_step(kOneShot, CollectiveKind::kAllReduce));
      EXPECT_FALSE(in_step(kRing, CollectiveKind::kAllReduce));
    }
}

// Ranks are out of step if they swap parts, meet in between, or do not all meet at the end.
TEST(RanksInStep, AllOfThem) {
  const Collective c{CollectiveKind::kAllReduce, 3, 0};
  const auto in_step = [](const Schedule& schedule) {
    return lower(verify(schedule, false), 0).in_step;
  };
  const Schedule good = kPeerMemory.make(c, false);
  EXPECT_TRUE(in_step(good));
  Schedule swapped = good;  // ranks 1 and 2 do each other's part
  for (const int r : {1, 2})
    for (Step& step : swapped.ranks[static_cast<size_t>(r)].lanes[0].steps)
      if (step.count > 0)
        for (auto* operands : {&step.from, &step.to})
          for (Operand& operand : *operands) operand.index = 3 - r;
  EXPECT_FALSE(in_step(swapped));

  const Schedule rounds = kSweep.make({CollectiveKind::kBroadcast, 3, 0}, false);
  EXPECT_TRUE(in_step(rounds));
  Schedule meeting = rounds;
  for (RankSchedule& rank : meeting.ranks) {
    std::vector<Step>& steps = rank.lanes[0].steps;
    ASSERT_EQ(steps[1].count, 0);
    const Step leave = steps[0], wait = steps[1];
    steps.insert(steps.begin() + 3, {leave, wait});  // after the first round
  }
  EXPECT_FALSE(in_step(meeting));
}

}  // namespace
}  // namespace weft
