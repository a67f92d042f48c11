// Eager calls of the lane kernel: messages to other hosts that do not wait until their consumer has
// entered the call.
#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "algorithms/generators/hierarchical.h"
#include "tests/exec/cuda/lane_team.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                     CollectiveKind::kBroadcast};

LaneCase eager_case(int host, uint64_t count, bool packets) {
  LaneCase shape{true, count, packets, true, host};
  shape.eager = true;
  return shape;
}

TEST(LaneEager, GivesRightResults) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 13 : 7;
  uint64_t number = test_seed();
  size_t eager = 0;
  const std::vector<int> hosts = {0, 0, 1, 1};
  for (const Generator* generator :
       {&kRing, &kRecursive, &kDirect, static_cast<const Generator*>(nullptr)})
    for (const CollectiveKind kind : kKinds) {
      const Collective c{kind, 4, 0};
      if (generator != nullptr && !generator->supports(c)) continue;
      const VerifiedSchedule verified = verify(
          generator == nullptr ? make_hierarchical(c, hosts) : generator->make(c, false), false, 2);
      for (const int host : {1, 2})
        for (const uint64_t count : {1, 29, 333}) {
          if (number++ % stride != 0 || (generator == nullptr && host == 1)) continue;
          LaneCase shape = eager_case(host, count, mix(number, 1) % 3 != 0);
          shape.gpu = number % 2 == 0;
          shape.in_shared = number % 3 != 0;
          shape.wide = mix(number, 2) % 2 == 0;
          shape.warps = mix(number, 3) % 2 == 0 ? 4 : 0;
          shape.blocks = 1 + static_cast<uint32_t>(mix(number, 4) % 3);
          LaneTeam team(verified, shape);
          for (int call = 0; call < 5; call++)
            ASSERT_EQ(team.run(), "") << (generator == nullptr ? "by hosts" : generator->name)
                                      << ' ' << name(kind) << ' ' << host << ' ' << count << ' '
                                      << shape.packets << shape.wide << shape.warps << shape.blocks;
          eager += team.eager();
          EXPECT_EQ(team.last_eager_call(), team.eager() > 0 ? 5u : 0u);
        }
    }
  EXPECT_GT(eager, 0u);
}

// Small messages are packets, also between hosts and beside scratch memory. Blocks of two warps or
// of several that lead themselves, with messages of one instance or of many.
TEST(LaneEager, SendsPackets) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  size_t with_warps = 0;
  for (const uint32_t warps : {0u, 4u})
    for (const CollectiveKind kind : kKinds)
      for (const bool wide : {false, true}) {
        if (kind == CollectiveKind::kBroadcast) continue;
        const Collective c{kind, 4, 0};
        for (const bool by_hosts : {false, true}) {
          LaneCase shape = eager_case(2, 30, true);
          shape.warps = warps;
          shape.wide = wide;
          shape.blocks = by_hosts ? 1 : 2;
          LaneTeam team(
              verify(by_hosts ? make_hierarchical(c, hosts) : kDirect.make(c, false), false, 2),
              shape);
          EXPECT_EQ(team.with_packets(), 4u) << name(kind);
          with_warps += team.with_warps();
          EXPECT_TRUE(warps > 0 || with_warps == 0) << name(kind);
          for (int call = 0; call < 3; call++)
            ASSERT_EQ(team.run(), "") << name(kind) << warps << wide << by_hosts;
          EXPECT_EQ(team.last_eager_call(), 3u);
        }
      }
  EXPECT_GT(with_warps, 0u);
}

Schedule four_chunks(int ranks) {
  Schedule made;
  made.collective = {CollectiveKind::kAllGather, ranks, 0};
  made.chunks = 4;
  made.ranks.resize(static_cast<size_t>(ranks));
  for (RankSchedule& rank : made.ranks) rank.lanes.resize(1);
  return made;
}

// Chunks of 8, 1, and no words. Threads without words pass by a step, but may not post before the
// first thread, which waits for what the other rank sends when it has got an earlier message.
TEST(LaneEager, PostsPacketsInTheOrderOfTheirSteps) {
  Schedule made = four_chunks(2);
  const auto sends = [&](int rank, int chunk) {
    Lane& lane = made.ranks[static_cast<size_t>(rank)].lanes[0];
    const Operand own = Operand::output(4 * rank + chunk), peer = Operand::peer(1 - rank);
    if (chunk == 0) {
      add(lane, {Operand::input(chunk)}, {own, peer});
    } else {
      add(lane, {Operand::input(chunk)}, {peer});
      add(lane, {Operand::input(chunk)}, {own});
    }
    add(made.ranks[static_cast<size_t>(1 - rank)].lanes[0], {Operand::peer(rank)},
        {Operand::output(4 * rank + chunk)});
  };
  for (const auto& [rank, chunk] :
       {std::pair{1, 1}, {0, 1}, {1, 2}, {0, 0}, {0, 2}, {0, 3}, {1, 3}, {1, 0}})
    sends(rank, chunk);
  LaneTeam team(verify(made, false, 8), eager_case(1, 17, true));
  EXPECT_EQ(team.with_packets(), 2u);
  for (int call = 0; call < 3; call++) ASSERT_EQ(team.run(), "");
}

// A message from an empty chunk of a block to the first one of the next. Each has packets of its
// own.
TEST(LaneEager, SendsEmptyChunksInPackets) {
  Schedule made = four_chunks(3);
  const auto lane = [&](int rank) -> Lane& {
    return made.ranks[static_cast<size_t>(rank)].lanes[0];
  };
  for (int c = 0; c < 4; c++) {
    add(lane(1), {Operand::input(c)}, {Operand::output(4 + c)});
    for (const int rank : {0, 2}) {
      add(lane(rank), {Operand::input(c)}, {Operand::output(4 * rank + c), Operand::peer(1)});
      add(lane(1), {Operand::peer(rank)}, {Operand::output(4 * rank + c)});
    }
  }
  for (const auto& [rank, first] : {std::pair{2, 0}, {0, 4}})
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 2}, {5, 3}}) {
      add(lane(1), {Operand::output(first + begin)}, {Operand::peer(rank)}, count);
      add(lane(rank), {Operand::peer(1)}, {Operand::output(first + begin)}, count);
    }
  const VerifiedSchedule verified = verify(made, false, 8);
  for (const int host : {0, 1}) {
    LaneCase shape = eager_case(host, 17, true);
    shape.eager = host > 0;
    LaneTeam team(verified, shape);
    EXPECT_EQ(team.with_packets(), 3u);
    for (int call = 0; call < 5; call++) ASSERT_EQ(team.run(), "") << host;
  }
}

// A step that only waits does so for all of its messages: its peers rely on the order. Rank 2 has
// nothing else to do with rank 1.
TEST(LaneEager, WaitsForAllMessagesWithoutData) {
  Schedule made;
  made.collective = {CollectiveKind::kBroadcast, 4, 0};
  made.chunks = 1;
  made.ranks.resize(4);
  for (RankSchedule& rank : made.ranks) rank.lanes.resize(1);
  const auto lane = [&](size_t rank) -> Lane& { return made.ranks[rank].lanes[0]; };
  add(lane(0), {}, {Operand::peer(2)}, 0);
  add(lane(0), {Operand::input(0)}, {Operand::output(0), Operand::peer(2), Operand::peer(3)});
  add(lane(1), {}, {Operand::peer(2)}, 0);
  add(lane(1), {Operand::peer(3)}, {Operand::output(0)});
  add(lane(2), {Operand::peer(0), Operand::peer(1)}, {}, 0);
  add(lane(2), {Operand::peer(0)}, {Operand::output(0)});
  add(lane(3), {Operand::peer(0)}, {Operand::output(0), Operand::peer(1)});
  const VerifiedSchedule verified = verify(made, false, 2);
  for (const int host : {0, 1}) {
    LaneCase shape = eager_case(host, 17, true);
    shape.eager = host > 0;
    shape.wide = true;  // a block with one item needs no leaders
    LaneTeam team(verified, shape);
    EXPECT_EQ(team.with_packets(), 4u);
    ASSERT_EQ(team.run(), "") << host;
    LaneTeam other(verified, shape);
    const KernelFault fault = fault_of(other.run_without(1, {2, 3})[2]);
    EXPECT_EQ(fault.error, KernelError::kLeft) << host;
    EXPECT_EQ(fault.peer, 1) << host;
  }
}

// Small calls and large ones, eager and not, with different pairs of ranks. A rank begins the next
// call when it is done with one, so messages of a call come while the call before runs.
TEST(LaneEager, DisturbsNoOtherCall) {
  Random random(mix(test_seed(), 72));
  for (int round = 0; round < (kSanitized ? 1 : 2); round++) {
    const int host = 1 + round % 2;
    std::vector<std::unique_ptr<LaneTeam>> teams;
    std::vector<LaneTeam*> calls;
    size_t eager = 0, packets = 0;
    for (int call = 0; call < (kSanitized ? 8 : 24); call++) {
      const CollectiveKind kind = kKinds[random.below(std::size(kKinds))];
      const Generator& generator =
          random.below(2) == 0 && kRing.supports({kind, 4, 0}) ? kRing : kDirect;
      const int root = kind == CollectiveKind::kBroadcast ? static_cast<int>(random.below(4)) : 0;
      // Of four calls at least one is eager with packets, and one without.
      const bool sure = call % 4 < 2;
      LaneCase shape = eager_case(host, !sure && random.below(2) == 0 ? 4000 : 1 + random.below(60),
                                  sure ? call % 4 == 0 : random.below(2) == 0);
      shape.eager = sure || random.below(2) != 0;
      shape.blocks = 1 + static_cast<uint32_t>(round);
      teams.push_back(
          std::make_unique<LaneTeam>(verify(generator.make({kind, 4, root}, false), false, 2),
                                     shape, teams.empty() ? nullptr : teams.front().get()));
      eager += teams.back()->eager();
      packets += teams.back()->with_packets();
      calls.push_back(teams.back().get());
    }
    EXPECT_GT(eager, packets);
    EXPECT_GT(packets, 0u);
    ASSERT_EQ(LaneTeam::run(calls), "") << round;
  }
}

// Rank 2 waits for the late rank in the first call, whose messages it has not looked at. Others
// make two more calls meanwhile, the last one with data for rank 2.
TEST(LaneEager, UsesNoRoomThatACallBeforeTheLastStillNeeds) {
  bool packets = false;
  const auto team = [&](const Generator& generator, CollectiveKind kind, int root,
                        LaneTeam* first) {
    const VerifiedSchedule verified = verify(generator.make({kind, 4, root}, false), false, 2);
    return std::make_unique<LaneTeam>(verified, eager_case(1, 60, packets), first);
  };
  for (int late = 0; late < 4; late++)
    for (int root = 0; root < 4; root++) {
      if (late == root) continue;
      packets = !packets;
      const auto first = team(kDirect, CollectiveKind::kGather, root, nullptr);
      std::vector<std::unique_ptr<LaneTeam>> others;
      for (int turn = 0; turn < 2; turn++) {
        others.push_back(team(kRing, CollectiveKind::kBroadcast, (root + 2) % 4, first.get()));
        others.push_back(team(kDirect, CollectiveKind::kScatter, (root + 2) % 4, first.get()));
      }
      std::vector<LaneTeam*> calls = {first.get()};
      for (const auto& other : others) calls.push_back(other.get());
      for (const LaneTeam* call : calls) EXPECT_EQ(call->eager(), 4u);
      ASSERT_EQ(LaneTeam::run(calls, late), "") << late << ' ' << root;
    }
}

// The consumer never enters the second call. The root has sent all the same, and learns at the end
// that nobody took it.
TEST(LaneEager, SendsBeforeItsConsumerHasEnteredTheCall) {
  for (const auto& [eager, packets] : {std::pair{true, false}, {true, true}, {false, false}}) {
    LaneCase shape = eager_case(1, 40, packets);
    shape.eager = eager;
    LaneTeam team(verify(kDirect.make({CollectiveKind::kBroadcast, 2, 0}, false), false, 2), shape);
    ASSERT_EQ(team.run(), "");
    const std::vector<uint64_t> errors = team.run_without(1);
    const KernelFault fault = fault_of(errors[0]);
    EXPECT_EQ(fault.error, KernelError::kLeft) << eager;
    EXPECT_EQ(fault.peer, 1) << eager;
    EXPECT_EQ(team.last_eager_call(), eager ? 2u : 0u);
  }
}

// The grant of a call may be gone when its producer looks for it: a consumer that has all messages
// goes on, and grants others.
TEST(LaneEager, TakesALaterGrantForOne) {
  for (const bool packets : {false, true}) {
    LaneTeam team(verify(kDirect.make({CollectiveKind::kBroadcast, 2, 0}, false), false, 2),
                  eager_case(1, 40, packets));
    ASSERT_EQ(team.run(), "");
    team.grant(0, 1, 4);
    EXPECT_EQ(team.run_without(1)[0], 0u) << packets;
  }
}

// Rank 1 makes another call. No rank takes data of it, and all with messages to it say so.
TEST(LaneEager, NamesARankInAnotherCall) {
  for (const auto& [kind, packets] : {std::pair{CollectiveKind::kAllGather, false},
                                      {CollectiveKind::kAllGather, true},
                                      {CollectiveKind::kBroadcast, false},
                                      {CollectiveKind::kBroadcast, true}}) {
    LaneTeam team(verify(kDirect.make({kind, 2, 0}, false), false, 2), eager_case(1, 40, packets));
    ASSERT_EQ(team.run(), "");
    const std::vector<int> finders =
        kind == CollectiveKind::kAllGather ? std::vector{0, 1} : std::vector{0};
    const std::vector<uint64_t> errors = team.run_with_other_call(1, finders);
    EXPECT_EQ(fault_of(errors[0]).error, KernelError::kOtherCall) << name(kind);
    EXPECT_EQ(fault_of(errors[0]).peer, 1) << name(kind);
    EXPECT_FALSE(team.has_output(1, 0)) << name(kind);
    if (kind != CollectiveKind::kAllGather) continue;
    EXPECT_EQ(fault_of(errors[1]).error, KernelError::kOtherCall);
    EXPECT_EQ(fault_of(errors[1]).peer, 0);
    EXPECT_FALSE(team.has_output(0, 1));
  }
}

}  // namespace
}  // namespace weft::test
