// Eager calls of the lane kernel: messages to other hosts that do not wait until their consumer has
// entered the call.
#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "algorithms/generators/hierarchical.h"
#include "tests/exec/cuda/lane_team.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                     CollectiveKind::kBroadcast};

LaneCase eager_case(int host, uint64_t count) {
  LaneCase shape{true, count, false, true, host};
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
          LaneCase shape = eager_case(host, count);
          shape.gpu = number % 2 == 0;
          shape.in_shared = number % 3 != 0;
          LaneTeam team(verified, shape);
          for (int call = 0; call < 5; call++)
            ASSERT_EQ(team.run(), "") << (generator == nullptr ? "by hosts" : generator->name)
                                      << ' ' << name(kind) << ' ' << host << ' ' << count;
          eager += team.eager();
          EXPECT_EQ(team.last_eager_call(), team.eager() > 0 ? 5u : 0u);
        }
    }
  EXPECT_GT(eager, 0u);
}

// Small calls and large ones, eager and not, with different pairs of ranks. A rank begins the next
// call when it is done with one, so messages of a call come while the call before runs.
TEST(LaneEager, DisturbsNoOtherCall) {
  Random random(mix(test_seed(), 72));
  for (int round = 0; round < (kSanitized ? 1 : 2); round++) {
    const int host = 1 + round % 2;
    std::vector<std::unique_ptr<LaneTeam>> teams;
    std::vector<LaneTeam*> calls;
    size_t eager = 0;
    for (int call = 0; call < (kSanitized ? 8 : 24); call++) {
      const CollectiveKind kind = kKinds[random.below(std::size(kKinds))];
      const Generator& generator =
          random.below(2) == 0 && kRing.supports({kind, 4, 0}) ? kRing : kDirect;
      const int root = kind == CollectiveKind::kBroadcast ? static_cast<int>(random.below(4)) : 0;
      LaneCase shape = eager_case(host, random.below(4) == 0 ? 4000 : 1 + random.below(60));
      shape.eager = random.below(4) != 0;
      teams.push_back(
          std::make_unique<LaneTeam>(verify(generator.make({kind, 4, root}, false), false, 2),
                                     shape, teams.empty() ? nullptr : teams.front().get()));
      eager += teams.back()->eager();
      calls.push_back(teams.back().get());
    }
    EXPECT_GT(eager, 0u);
    ASSERT_EQ(LaneTeam::run(calls), "") << round;
  }
}

// Rank 2 waits for the late rank in the first call, whose messages it has not looked at. Others
// make two more calls meanwhile, the last one with data for rank 2.
TEST(LaneEager, UsesNoRoomThatACallBeforeTheLastStillNeeds) {
  const auto team = [](const Generator& generator, CollectiveKind kind, int root, LaneTeam* first) {
    const VerifiedSchedule verified = verify(generator.make({kind, 4, root}, false), false, 2);
    return std::make_unique<LaneTeam>(verified, eager_case(1, 60), first);
  };
  for (int late = 0; late < 4; late++)
    for (int root = 0; root < 4; root++) {
      if (late == root) continue;
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
  for (const bool eager : {true, false}) {
    LaneCase shape = eager_case(1, 40);
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
  LaneTeam team(verify(kDirect.make({CollectiveKind::kBroadcast, 2, 0}, false), false, 2),
                eager_case(1, 40));
  ASSERT_EQ(team.run(), "");
  team.grant(0, 1, 4);
  EXPECT_EQ(team.run_without(1)[0], 0u);
}

// Rank 1 makes another call. No rank takes data of it, and all with messages to it say so.
TEST(LaneEager, NamesARankInAnotherCall) {
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    LaneTeam team(verify(kDirect.make({kind, 2, 0}, false), false, 2), eager_case(1, 40));
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
