// The lane kernel on the host: every rank is one thread block, which then runs all its lanes, or
// several. Its messages go through slots, or straight to their place.
#include <gtest/gtest.h>

#include "algorithms/generators/coded.h"
#include "algorithms/generators/generators.h"
#include "algorithms/generators/hierarchical.h"
#include "tests/exec/cuda/lane_team.h"
#include "tests/simulator/random_schedules.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                     CollectiveKind::kBroadcast};

TEST(LaneKernel, RunsGenerators) {
  // Some of the cases, from the seed on; all of them if more samples are wanted.
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 29 : 7;
  uint64_t number = test_seed();
  size_t straight = 0;
  for (const Generator* generator : {&kRing, &kTree, &kRecursive, &kDirect, &kPairwise})
    for (const CollectiveKind kind : kKinds)
      for (const bool in_place : {false, true}) {
        const Collective c{kind, 3, 0};
        if (!generator->supports(c)) continue;
        const VerifiedSchedule verified = verify(generator->make(c, in_place), in_place, 2);
        for (LaneCase shape :
             {LaneCase{false, 29}, LaneCase{false, 1000}, LaneCase{true, 1}, LaneCase{true, 1000},
              LaneCase{true, 1001, false, false}, LaneCase{false, 1, true},
              LaneCase{false, 333, true}, LaneCase{false, 77, true, false}}) {
          if (number++ % stride != 0) continue;
          shape.gaps = (number / stride) % 2 == 0;
          shape.blocks = 1 + static_cast<uint32_t>(mix(number, 5) % 3);
          LaneTeam team(verified, shape);
          for (int call = 0; call < 2; call++)
            ASSERT_EQ(team.run(), "")
                << generator->name << ' ' << name(kind) << ' ' << in_place << shape.straight
                << shape.packets << ' ' << shape.count << ' ' << shape.blocks;
          straight += team.straight();
        }
      }
  EXPECT_GT(straight, 0u);
}

// Producers of straight messages do not wait for room. To tell them of it might disturb a later
// call.
TEST(LaneKernel, StraightMessagesNeedNoRoom) {
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllToAll}) {
    const VerifiedSchedule verified = verify(kDirect.make({kind, 3, 0}, false), false, 2);
    for (const bool straight : {true, false}) {
      LaneTeam team(verified, {straight, 9000, false, false});
      for (int call = 0; call < 3; call++) ASSERT_EQ(team.run(), "") << name(kind) << straight;
      if (kind == CollectiveKind::kAllGather) {
        EXPECT_EQ(team.only_arriving() > 0, straight);
        EXPECT_EQ(team.unresolved() > 0, straight);
      }
      EXPECT_EQ(team.told_of_room() > 0, !straight) << name(kind);
    }
  }
}

// Both ends of a message know whether it goes straight.
TEST(LaneKernel, SomeOutputsArePrivate) {
  for (const CollectiveKind kind : kKinds)
    for (const Generator* generator : {&kRing, &kDirect}) {
      const Collective c{kind, 4, 0};
      if (!generator->supports(c)) continue;
      LaneCase shape{true, 3000};
      shape.some_private = true;
      LaneTeam team(verify(generator->make(c, false), false, 2), shape);
      for (int call = 0; call < 2; call++)
        ASSERT_EQ(team.run(), "") << generator->name << ' ' << name(kind);
    }
}

// Threads go through the steps of a lane without meeting. Chunks are of different lengths, some of
// them empty.
TEST(LaneKernel, PacketsPassThroughALaneThatIsAlone) {
  for (const CollectiveKind kind : kKinds)
    for (const bool in_place : {false, true})
      for (const uint64_t count : {1, 2, 33, 150, 700}) {
        const Collective c{kind, 4, 0};
        if (!kRing.supports(c)) continue;
        LaneCase shape{false, count, true};
        shape.wide = true;
        LaneTeam team(verify(kRing.make(c, in_place), in_place, 2), shape);
        for (int call = 0; call < 2; call++)
          ASSERT_EQ(team.run(), "") << name(kind) << ' ' << count;
      }
}

// Small messages of blocks with several items: each warp leads itself, with one item or more.
TEST(LaneKernel, WarpsOfABlockRunItemsOfTheirOwn) {
  size_t with_warps = 0;
  const auto runs = [&](const VerifiedSchedule& verified, const std::string& what) {
    for (const uint32_t warps : {2u, 6u})
      for (const uint64_t count : {1, 40, 333}) {
        LaneCase shape{false, count, true, count != 40};
        shape.warps = warps;
        LaneTeam team(verified, shape);
        for (int call = 0; call < 3; call++)
          ASSERT_EQ(team.run(), "") << what << ' ' << warps << ' ' << count;
        with_warps += team.with_warps();
      }
  };
  for (const CollectiveKind kind : kKinds) {
    const Collective c{kind, 3, 0};
    for (const Generator* generator : {&kDirect, &kRing})
      if (generator->supports(c))
        runs(verify(generator->make(c, false), false, 2),
             std::string(generator->name) + ' ' + std::string(name(kind)));
  }
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
    runs(verify(random_forest({kind, 3, 0}, 3, test_seed()), false, 2), std::string(name(kind)));
  EXPECT_GT(with_warps, 0u);
}

// Two lanes of a rank wait for each other's steps, which warps tell each other.
TEST(LaneKernel, WarpsWaitForStepsOfOthers) {
  Schedule schedule;
  schedule.name = "lanes in turn";
  schedule.collective = {CollectiveKind::kAllGather, 2, 0};
  schedule.ranks.resize(2);
  for (int r = 0; r < 2; r++) {
    auto& lanes = schedule.ranks[static_cast<size_t>(r)].lanes;
    lanes.resize(2);
    lanes[0].steps.push_back({{Operand::input(0)}, {Operand::output(r)}, 1, {}});
    lanes[1].steps.push_back({{Operand::output(r)}, {Operand::peer(1 - r)}, 1, {{0, 0}}});
    lanes[0].steps.push_back({{Operand::peer(1 - r)}, {Operand::output(1 - r)}, 1, {{1, 0}}});
  }
  const VerifiedSchedule verified = verify(schedule, false, 2);
  for (const uint32_t warps : {2u, 3u}) {
    LaneCase shape{false, 100, true};
    shape.warps = warps;
    LaneTeam team(verified, shape);
    for (int call = 0; call < 20; call++) ASSERT_EQ(team.run(), "") << warps;
    EXPECT_EQ(team.with_warps(), 2u);
  }
}

TEST(LaneKernel, NamesARankThatHasLeftToEveryWarp) {
  const Collective c{CollectiveKind::kAllGather, 3, 0};
  const VerifiedSchedule verified = verify(kDirect.make(c, false), false, 2);
  for (const uint32_t warps : {2u, 4u}) {
    LaneCase shape{true, 40, true};
    shape.warps = warps;
    LaneTeam team(verified, shape);
    const std::vector<uint64_t> errors = team.run_without(1);
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      const KernelFault fault = fault_of(errors[rank]);
      EXPECT_EQ(fault.error, KernelError::kLeft) << warps << rank;
      EXPECT_EQ(fault.peer, 1) << warps << rank;
    }
  }
}

TEST(LaneKernel, ReachesOtherHosts) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 23 : 7;
  uint64_t number = test_seed();
  for (const Generator* generator : {&kRing, &kRecursive, &kDirect})
    for (const CollectiveKind kind : kKinds) {
      const Collective c{kind, 4, 0};
      if (!generator->supports(c)) continue;
      const VerifiedSchedule verified = verify(generator->make(c, false), false, 2);
      for (const int host : {1, 2})
        for (LaneCase shape :
             {LaneCase{true, 29, false, true, host}, LaneCase{true, 1000, false, false, host},
              LaneCase{false, 1500, false, true, host}}) {
          if (number++ % stride != 0) continue;
          shape.gpu = number % 2 == 0;
          LaneTeam team(verified, shape);
          for (int call = 0; call < 3; call++)
            ASSERT_EQ(team.run(), "") << generator->name << ' ' << name(kind) << ' ' << host << ' '
                                      << shape.count << ' ' << shape.gpu;
        }
    }
}

TEST(LaneKernel, GoesByHosts) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 11 : 3;
  uint64_t number = test_seed();
  for (const CollectiveKind kind : kKinds)
    for (const bool in_place : {false, true}) {
      const Collective c{kind, 4, 0};
      const std::vector<int> hosts = {0, 0, 1, 1};
      const VerifiedSchedule verified = verify(make_hierarchical(c, hosts), in_place, 2);
      for (LaneCase shape :
           {LaneCase{true, 29, false, true, 2}, LaneCase{true, 1000, false, false, 2},
            LaneCase{false, 1500, false, true, 2}}) {
        if (number++ % stride != 0) continue;
        shape.gpu = number % 2 == 0;
        LaneTeam team(verified, shape);
        for (int call = 0; call < 3; call++)
          ASSERT_EQ(team.run(), "")
              << name(kind) << ' ' << in_place << ' ' << shape.count << ' ' << shape.gpu;
      }
    }
}

// Chunks that lie one after the other are moved as one, where one instance does a call in one go.
TEST(LaneKernel, MovesNeighboursAsOne) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  const Collective c{CollectiveKind::kAllToAll, 4, 0};
  for (const bool in_place : {false, true})
    for (const bool packets : {false, true})
      for (const uint32_t blocks : {1u, 3u}) {
        const VerifiedSchedule verified = verify(make_hierarchical(c, hosts), in_place, 2);
        for (const auto& [count, whole] :
             {std::pair{packets ? 64 : 32, true}, {1024, false}, {65, false}}) {
          LaneCase shape{true, static_cast<uint64_t>(count), packets, true, 2};
          shape.eager = packets;
          shape.blocks = blocks;
          shape.gpu = count == 1024;
          LaneTeam team(verified, shape);
          for (int call = 0; call < 3; call++)
            ASSERT_EQ(team.run(), "") << in_place << packets << blocks << count;
          EXPECT_EQ(team.whole() > 0, whole) << in_place << packets << blocks << count;
        }
      }
}

// The same of chunks of one block, and of steps that sum.
TEST(LaneKernel, SumsNeighboursAsOne) {
  size_t whole = 0;
  for (const Generator* generator : {&kRecursive, &kHalving})
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather})
      for (const bool packets : {false, true}) {
        const Collective c{kind, 4, 0};
        if (!generator->supports(c)) continue;
        LaneTeam team(verify(generator->make(c, false), false, 2), {false, 64, packets});
        for (int call = 0; call < 3; call++)
          ASSERT_EQ(team.run(), "") << generator->name << ' ' << name(kind) << ' ' << packets;
        whole += kind == CollectiveKind::kAllGather ? 0 : team.whole();
      }
  EXPECT_GT(whole, 0u);
}

// NICs send from the caller's buffers, and into them. Callers change them as soon as they may.
TEST(LaneKernel, LeavesBuffersToNics) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 37 : 11;
  uint64_t number = test_seed();
  std::pair<uint64_t, uint64_t> by_nics;
  const std::vector<int> hosts = {0, 0, 1, 1};
  for (const Generator* generator :
       {&kRing, &kRecursive, &kDirect, static_cast<const Generator*>(nullptr)})
    for (const CollectiveKind kind : kKinds)
      for (const bool in_place : {false, true}) {
        const Collective c{kind, 4, 0};
        if (generator != nullptr && !generator->supports(c)) continue;
        const VerifiedSchedule verified = verify(
            generator == nullptr ? make_hierarchical(c, hosts) : generator->make(c, in_place),
            in_place, 2);
        for (const int buffers : {1, 2, 3})
          for (LaneCase shape :
               {LaneCase{true, 1001, false, true, 2}, LaneCase{true, 700, false, false, 1},
                LaneCase{false, 1500, false, true, 2}}) {
            if (number++ % stride != 0) continue;
            shape.gpu = true;
            shape.all_gpus = number % 3 != 0;
            shape.buffers = buffers;
            LaneTeam team(verified, shape);
            for (int call = 0; call < 3; call++)
              ASSERT_EQ(team.run(), "")
                  << (generator == nullptr ? "by hosts" : generator->name) << ' ' << name(kind)
                  << ' ' << in_place << ' ' << shape.count << ' ' << shape.host << ' ' << buffers;
            by_nics.first += team.by_nics().first;
            by_nics.second += team.by_nics().second;
          }
      }
  EXPECT_GT(by_nics.first, 0u);
  EXPECT_GT(by_nics.second, 0u);
}

TEST(LaneKernel, RunsCodecsWithTheBitsOfTheHost) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 37 : 17;
  uint64_t number = test_seed();
  for (const char* codec : {"int8:block=16", "int4:block=64", "fp8:block=32", "onebit:block=16",
                            "topk:block=64:density=0.1"})
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
      for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, {0, 1, 2, 2}, {0, 1}})
        for (const bool in_place : {false, true}) {
          const Collective c{kind, static_cast<int>(hosts.size()), 0};
          const VerifiedSchedule verified =
              verify(make_coded(c, hosts, parse_codec_spec(codec)), in_place, 2);
          for (const LaneCase& shape :
               {LaneCase{true, 29}, LaneCase{true, 1000, true}, LaneCase{true, 1500, false, false},
                LaneCase{false, 700, false, true, 2}}) {
            if (number++ % stride != 0) continue;
            LaneTeam team(verified, shape);
            for (int call = 0; call < 2; call++)
              ASSERT_EQ(team.run(), "") << codec << ' ' << name(kind) << ' ' << in_place << ' '
                                        << shape.count << ' ' << shape.host;
          }
        }
}

// What a call loses comes with the next one.
TEST(LaneKernel, KeepsTheLossesOfTheHost) {
  const uint64_t stride = test_samples(1) > 1 ? 1 : kSanitized ? 23 : 7;
  uint64_t number = test_seed();
  for (const char* codec : {"int4:block=16", "onebit:block=32", "topk:block=16:density=0.2"})
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter})
      for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, {0, 1, 2, 2}, {0, 1}})
        for (const bool in_place : {false, true}) {
          const Collective c{kind, static_cast<int>(hosts.size()), 0};
          const VerifiedSchedule verified =
              verify(make_coded(c, hosts, parse_codec_spec(codec)), in_place, 2);
          for (LaneCase shape : {LaneCase{true, 29}, LaneCase{true, 1500, false, false},
                                 LaneCase{false, 700, false, true, 2}}) {
            if (number++ % stride != 0) continue;
            shape.feedback = true;
            LaneTeam team(verified, shape);
            for (int call = 0; call < 3; call++)
              ASSERT_EQ(team.run(), "") << codec << ' ' << name(kind) << ' ' << in_place << ' '
                                        << shape.count << ' ' << shape.host << ' ' << call;
          }
        }
}

// Ports of one schedule lie where those of another were, while slower ranks still wait there.
TEST(LaneKernel, RunsDifferentSchedulesOneAfterTheOther) {
  for (const int host : {0, 2}) {
    std::vector<std::unique_ptr<LaneTeam>> teams;
    std::vector<LaneTeam*> calls;
    for (const CollectiveKind kind :
         {CollectiveKind::kGather, CollectiveKind::kScatter, CollectiveKind::kBroadcast,
          CollectiveKind::kReduce, CollectiveKind::kAllToAll})
      for (int root = 0; root < (kind == CollectiveKind::kAllToAll ? 1 : 4); root++) {
        const VerifiedSchedule verified = verify(kDirect.make({kind, 4, root}, false), false, 2);
        const uint64_t count = root % 2 == 0 ? 30 : 400;
        teams.push_back(std::make_unique<LaneTeam>(verified,
                                                   LaneCase{false, count, false, true, host, true},
                                                   teams.empty() ? nullptr : teams.front().get()));
        calls.push_back(teams.back().get());
      }
    Random random(mix(test_seed(), 71));
    for (size_t i = calls.size(); i > 1; i--) std::swap(calls[i - 1], calls[random.below(i)]);
    calls.resize(kSanitized ? 4 : 8);
    EXPECT_EQ(LaneTeam::run(calls), "") << host;
  }
}

TEST(LaneKernel, NamesARankThatHasLeft) {
  // All ranks receive from rank 1 and send nothing to it, so they wait for its packets or slots.
  const Collective c{CollectiveKind::kBroadcast, 3, 1};
  const VerifiedSchedule verified = verify(kDirect.make(c, false), false, 2);
  for (const bool packets : {false, true}) {
    LaneTeam team(verified, {true, 40, packets});
    const std::vector<uint64_t> errors = team.run_without(1);
    for (const int rank : {0, 2}) {
      const KernelFault fault = fault_of(errors[static_cast<size_t>(rank)]);
      EXPECT_EQ(fault.error, KernelError::kLeft) << packets << rank;
      EXPECT_EQ(fault.peer, 1) << packets << rank;
      EXPECT_EQ(fault.call, 7u) << packets << rank;
      // A thread that waits for its packets does not know the step.
      EXPECT_TRUE(fault.step == 0 || (packets && fault.step == -1)) << packets << rank;
    }
  }
}

// Lanes with the others finish, in any order. Then only those with the rank that has left wait.
TEST(LaneKernel, NamesARankThatHasLeftWhenOtherLanesAreFinished) {
  constexpr int kRanks = 3, kGone = 2;
  Schedule schedule;
  schedule.name = "a lane per message";
  schedule.collective = {CollectiveKind::kAllGather, kRanks, 0};
  schedule.ranks.resize(kRanks);
  for (int r = 0; r < kRanks; r++) {
    auto& lanes = schedule.ranks[static_cast<size_t>(r)].lanes;
    lanes.push_back({{{{Operand::input(0)}, {Operand::output(r)}, 1, {}}}});
    for (int peer = 0; peer < kRanks; peer++) {
      if (peer == r) continue;
      lanes.push_back({{{{Operand::input(0)}, {Operand::peer(peer)}, 1, {}}}});
      lanes.push_back({{{{Operand::peer(peer)}, {Operand::output(peer)}, 1, {}}}});
    }
  }
  const VerifiedSchedule verified = verify(schedule, false, 2);
  LaneTeam team(verified, {true, 1000});
  const std::vector<uint64_t> errors = team.run_without(kGone);
  for (int rank = 0; rank < kGone; rank++) {
    const KernelFault fault = fault_of(errors[static_cast<size_t>(rank)]);
    EXPECT_EQ(fault.error, KernelError::kLeft) << rank;
    EXPECT_EQ(fault.peer, kGone) << rank;
  }
}

TEST(LaneKernel, RunsManyRanks) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "its 288 threads take the thread sanitizer too long; fewer ranks do the same";
#endif
  const bool all = test_samples(1) > 1;
  uint64_t number = test_seed();
  for (const Generator* generator : {&kDirect, &kRecursive}) {
    const Collective c{CollectiveKind::kAllReduce, 36, 0};
    const VerifiedSchedule verified = verify(generator->make(c, false), false, 2);
    for (const bool packets : {false, true}) {
      if (number++ % 2 != 0 && !all) continue;
      LaneTeam team(verified, {true, 40, packets});
      ASSERT_EQ(team.run(), "") << generator->name << packets;
    }
  }
}

TEST(LaneKernel, RunsRandomForests) {
  for (uint64_t seed = 0; seed < 6; seed++)
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      const VerifiedSchedule verified = verify(random_forest({kind, 4, 0}, 3, seed), false, 2);
      LaneTeam team(verified, {true, 500});
      for (int call = 0; call < 3; call++) ASSERT_EQ(team.run(), "") << seed << ' ' << name(kind);
    }
}

}  // namespace
}  // namespace weft::test
