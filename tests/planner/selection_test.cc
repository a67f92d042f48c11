// The choice of generators, the values of WEFT_PLAN, and that each plan is made once.
#include "src/planner/selection.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "src/base/error.h"
#include "src/planner/proved_schedules.h"

namespace weft::test {
namespace {

TEST(Selection, AlwaysFindsAGeneratorThatSupportsTheCollective) {
  for (int kind = 0; kind < kCollectiveKinds; kind++) {
    for (const int n : {1, 2, 3, 16, 17, 64, 65, 100, 128, 1000}) {
      const Collective c{static_cast<CollectiveKind>(kind), n, n - 1};
      if (c.kind == CollectiveKind::kSendRecv && n != 2) continue;
      for (const size_t bytes :
           {size_t{1}, size_t{16} << 10, size_t{17} << 10, size_t{1} << 20, size_t{1} << 32}) {
        for (const bool one_process : {false, true}) {
          for (const bool one_host : {false, true}) {
            Placement placement;
            placement.one_process = one_process;
            placement.one_host = one_host;
            const Generator& chosen = choose_generator(c, bytes, placement, nullptr);
            EXPECT_TRUE(chosen.supports(c))
                << name(c.kind) << " of " << n << " ranks: " << chosen.name;
          }
        }
      }
    }
  }
}

TEST(Selection, TakesSeveralConnectionsForLargeArraysBetweenGpusOfFewHosts) {
  Placement placement;
  placement.one_host = false;
  placement.multi_connection = true;
  const Collective two{CollectiveKind::kAllReduce, 2, 0}, four{CollectiveKind::kAllReduce, 4, 0};
  EXPECT_EQ(choose_generator(two, 1u << 20, placement, nullptr).name, "multi_connection");
  EXPECT_EQ(choose_generator(four, 1u << 20, placement, nullptr).name, "multi_connection");
  EXPECT_EQ(choose_generator(two, 64u << 10, placement, nullptr).name, "one_shot");
  EXPECT_NE(choose_generator(four, 64u << 10, placement, nullptr).name, "one_shot");
  placement.multi_connection = false;
  EXPECT_EQ(choose_generator(two, 1u << 20, placement, nullptr).name, "ring");
}

TEST(Selection, GoesStraightToFewRanksThatAreAloneOnTheirHosts) {
  Placement placement;
  placement.one_host = placement.one_process = false;
  const auto chosen = [&](CollectiveKind kind, int ranks, size_t bytes) {
    return choose_generator({kind, ranks, 0}, bytes, placement, nullptr).name;
  };
  constexpr auto kSum = CollectiveKind::kAllReduce, kScatter = CollectiveKind::kReduceScatter,
                 kGather = CollectiveKind::kAllGather;
  for (const size_t bytes : {size_t{1} << 20, size_t{64} << 20}) {
    placement.own_hosts = true;
    EXPECT_EQ(chosen(kSum, 4, bytes), "direct");
    EXPECT_EQ(chosen(kScatter, 8, bytes), "direct");
    EXPECT_EQ(chosen(kSum, 5, bytes), "ring") << "too many";
    EXPECT_EQ(chosen(kScatter, 9, bytes), "ring") << "too many";
    EXPECT_EQ(chosen(kSum, 2, bytes), "ring");
    EXPECT_EQ(chosen(kGather, 2, bytes), "one_round");
    EXPECT_EQ(chosen(kGather, 4, bytes), "one_round");
    EXPECT_NE(chosen(kGather, 5, bytes), "one_round") << "too many";
    placement.own_hosts = false;
    EXPECT_NE(chosen(kGather, 4, bytes), "one_round") << "ranks of a host share its network";
    EXPECT_EQ(chosen(kSum, 4, bytes), "ring") << "ranks of a host share its network";
    EXPECT_EQ(chosen(kScatter, 4, bytes), "ring") << "ranks of a host share its network";
  }
  placement.own_hosts = true;
  EXPECT_EQ(chosen(kScatter, 4, 256u << 10), "ring");
  EXPECT_EQ(chosen(kSum, 4, 512u << 10), "ring");
}

TEST(Selection, GoesByHostsWhereRanksShareSomeOfThem) {
  Placement placement;
  placement.one_host = placement.one_process = false;
  const auto chosen = [&](CollectiveKind kind, size_t bytes) {
    return choose_generator({kind, 8, 0}, bytes, placement, nullptr).name;
  };
  placement.hosts = hosts_of_hierarchy({0, 0, 0, 0, 1, 1, 1, 1});
  for (const auto kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    EXPECT_EQ(chosen(kind, 1u << 20), "hierarchical");
    EXPECT_NE(chosen(kind, 16u << 10), "hierarchical");
  }
  EXPECT_NE(chosen(CollectiveKind::kAllToAll, 1u << 20), "hierarchical");
  placement.lanes = true;
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                          CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll})
    for (const size_t bytes : {size_t{8}, size_t{8} << 10, size_t{32} << 20})
      EXPECT_EQ(chosen(kind, bytes), "hierarchical") << "proxies send less";
  EXPECT_NE(chosen(CollectiveKind::kBroadcast, 16u << 10), "hierarchical");
  placement.via_host = true;
  EXPECT_NE(chosen(CollectiveKind::kAllReduce, 1u << 20), "hierarchical") << "no scratch memory";
}

TEST(Selection, DoesNotSendSmallArraysAlongARingOfHosts) {
  Placement placement;
  placement.one_host = placement.one_process = false;
  placement.lanes = true;
  for (const int hosts : {8, 9}) {
    std::vector<int> map;
    for (int r = 0; r < 2 * hosts; r++) map.push_back(r % hosts);
    placement.hosts = hosts_of_hierarchy(map);
    const auto chosen = [&](CollectiveKind kind, size_t bytes) {
      return choose_generator({kind, 2 * hosts, 0}, bytes, placement, nullptr).name;
    };
    EXPECT_EQ(chosen(CollectiveKind::kAllReduce, 1024) == "hierarchical", hosts == 8);
    EXPECT_EQ(chosen(CollectiveKind::kAllReduce, 1u << 20), "hierarchical");
    EXPECT_EQ(chosen(CollectiveKind::kAllToAll, 1024), "hierarchical");
  }
}

TEST(Selection, KnowsWhereAHierarchyIsOfUse) {
  EXPECT_TRUE(hosts_of_hierarchy({}).empty());
  EXPECT_TRUE(hosts_of_hierarchy({3, 3, 3}).empty()) << "one host";
  EXPECT_TRUE(hosts_of_hierarchy({0, 1, 2}).empty()) << "nobody shares a host";
  EXPECT_EQ(hosts_of_hierarchy({0, 1, 0}), (std::vector<int>{0, 1, 0}));
  std::vector<int> large(64, 0);
  large.push_back(1);
  EXPECT_TRUE(hosts_of_hierarchy(large).empty()) << "too many sources for one step";
}

TEST(Selection, SendsPacketsBetweenGpusWhileDataIsSmallAndForLongerBetweenProcesses) {
  constexpr size_t kPackets = 1u << 20;
  const auto chosen = [](CollectiveKind kind, int n, size_t bytes, bool together) {
    const GpuChoice choice = choose_for_gpu({kind, n, 0}, bytes, kPackets, nullptr, together);
    EXPECT_EQ(choice.packets, !choice.generator->peer_memory);
    return choice.generator->name;
  };
  const auto in_processes = [&](CollectiveKind kind, int n, size_t bytes) {
    return chosen(kind, n, bytes, false);
  };
  EXPECT_EQ(in_processes(CollectiveKind::kAllReduce, 8, 128u << 10), "one_shot");
  EXPECT_EQ(in_processes(CollectiveKind::kAllReduce, 8, 256u << 10), "peer_memory");
  EXPECT_EQ(in_processes(CollectiveKind::kReduce, 8, 256u << 10), "one_round") << "there is a root";
  EXPECT_EQ(in_processes(CollectiveKind::kReduce, 8, 512u << 10), "peer_memory");
  EXPECT_EQ(in_processes(CollectiveKind::kBroadcast, 8, 128u << 10), "one_round");
  EXPECT_EQ(in_processes(CollectiveKind::kBroadcast, 8, 256u << 10), "tree");
  EXPECT_EQ(in_processes(CollectiveKind::kBroadcast, 4, 512u << 10), "peer_memory");
  EXPECT_EQ(in_processes(CollectiveKind::kAllGather, 8, 256u << 20), "peer_memory");
  const auto in_threads = [&](CollectiveKind kind, int n, size_t bytes) {
    return chosen(kind, n, bytes, true);
  };
  EXPECT_EQ(in_threads(CollectiveKind::kAllReduce, 8, 64u << 10), "one_shot");
  EXPECT_EQ(in_threads(CollectiveKind::kAllReduce, 8, 128u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kReduce, 4, 512u << 10), "one_round") << "there is a root";
  EXPECT_EQ(in_threads(CollectiveKind::kReduce, 4, 768u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kReduce, 8, 256u << 10), "one_round");
  EXPECT_EQ(in_threads(CollectiveKind::kReduce, 8, 512u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kReduce, 2, 513u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kBroadcast, 4, 256u << 10), "one_round");
  EXPECT_EQ(in_threads(CollectiveKind::kBroadcast, 4, 257u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kBroadcast, 2, 512u << 10), "one_round");
  EXPECT_EQ(in_threads(CollectiveKind::kBroadcast, 2, 513u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kAllReduce, 4, 256u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kBroadcast, 8, 128u << 10), "peer_memory");
  EXPECT_EQ(in_threads(CollectiveKind::kAllGather, 8, 256u << 20), "sweep");
  for (const auto kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast})
    EXPECT_FALSE(choose_for_gpu({kind, 2, 0}, 1, 0, nullptr, true).packets) << "packets are off";
}

TEST(Selection, ExchangesSmallMessagesAtOnceBetweenGpusThatUseHostMemory) {
  Placement placement;
  placement.one_host = false;
  placement.via_host = true;
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                          CollectiveKind::kBroadcast, CollectiveKind::kAllToAll}) {
    EXPECT_EQ(choose_generator({kind, 4, 0}, 16u << 10, placement, nullptr).name, "one_round");
    EXPECT_NE(choose_generator({kind, 4, 0}, 1u << 20, placement, nullptr).name, "one_round");
    EXPECT_NE(choose_generator({kind, 32, 0}, 16u << 10, placement, nullptr).name, "one_round");
  }
  EXPECT_EQ(
      choose_generator({CollectiveKind::kAllReduce, 4, 0}, 16u << 10, placement, nullptr).name,
      "one_shot");
}

TEST(Selection, GathersByRoundsThenStraightThenInARingBetweenHosts) {
  Placement placement;
  placement.one_host = false;
  const Collective c{CollectiveKind::kAllGather, 4, 0};
  EXPECT_EQ(choose_generator(c, 256u << 10, placement, nullptr).name, "recursive");
  EXPECT_EQ(choose_generator(c, 1u << 20, placement, nullptr).name, "direct");
  EXPECT_EQ(choose_generator(c, 2u << 20, placement, nullptr).name, "ring");
}

TEST(Selection, ObeysWeftPlan) {
  const std::string plan = "all_reduce=ring,broadcast=tree";
  EXPECT_EQ(forced_generator(CollectiveKind::kAllReduce, plan)->name, "ring");
  EXPECT_EQ(forced_generator(CollectiveKind::kBroadcast, plan)->name, "tree");
  EXPECT_EQ(forced_generator(CollectiveKind::kReduce, plan), nullptr);
  EXPECT_EQ(forced_generator(CollectiveKind::kReduce, ""), nullptr);
  const Collective c{CollectiveKind::kAllReduce, 4, 0};
  EXPECT_EQ(choose_generator(c, 8, {}, find_generator("tree")).name, "tree");
}

TEST(Selection, RefusesAPlanItCannotFollowAndSaysWhich) {
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ncclInvalidUsage);
      return error.what();
    }
    return "accepted";
  };
  for (const char* plan : {"ring", "all_reduce=rings", "allreduce=ring", "all_reduce=ring,tree"})
    EXPECT_NE(
        refusal([&] { forced_generator(CollectiveKind::kBroadcast, plan); }).find("WEFT_PLAN"),
        std::string::npos)
        << plan;
  const std::string text = refusal([] {
    choose_generator({CollectiveKind::kAllToAll, 4, 0}, 8, {}, find_generator("ring"));
  });
  EXPECT_NE(text.find("ring"), std::string::npos) << text;
  EXPECT_NE(text.find("alltoall"), std::string::npos) << text;
}

TEST(ProvedSchedules, MakesAPlanOnceForAllRanksThatAskAtTheSameTime) {
  const Collective c{CollectiveKind::kAllReduce, 24, 0};
  std::vector<std::shared_ptr<const VerifiedSchedule>> plans(8);
  std::vector<std::thread> threads;
  for (auto& plan : plans)
    threads.emplace_back([&] { plan = ProvedSchedules::instance().get(kRing, c, false); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), 1u);
  EXPECT_NE(ProvedSchedules::instance().get(kRing, c, true), plans[0]);
}

TEST(ProvedSchedules, DiffersByHostsOnlyWhereTheGeneratorDoes) {
  const Collective c{CollectiveKind::kAllReduce, 4, 0};
  const auto get = [&](const Generator& generator, const std::vector<int>& hosts) {
    return ProvedSchedules::instance().get(generator, c, false, hosts);
  };
  EXPECT_NE(get(kHierarchical, {0, 0, 1, 1})->schedule(),
            get(kHierarchical, {0, 1, 0, 1})->schedule());
  EXPECT_EQ(get(kHierarchical, {0, 0, 1, 1}), get(kHierarchical, {0, 0, 1, 1}));
  EXPECT_EQ(get(kTree, {0, 0, 1, 1}), get(kTree, {}));
}

TEST(ProvedSchedules, TellsEveryoneWhoAsksThatAPlanCannotBeMade) {
  const Generator broken = {"broken", "", [](const Collective&) { return true; },
                            [](const Collective& c, bool) {
                              Schedule schedule;
                              schedule.name = "broken";
                              schedule.collective = c;
                              return schedule;
                            }};
  for (int i = 0; i < 2; i++)
    EXPECT_THROW(ProvedSchedules::instance().get(broken, {CollectiveKind::kAllReduce, 2, 0}, false),
                 Error);
}

TEST(ProvedSchedules, ForgetsOldPlansButLeavesThoseInUseAlone) {
  const auto kept =
      ProvedSchedules::instance().get(kTree, {CollectiveKind::kBroadcast, 3, 1}, false);
  for (int n = 2; n < 300; n++)
    for (int root = 0; root < 3; root++)
      ProvedSchedules::instance().get(
          kTree, {CollectiveKind::kBroadcast, 1 + n % 40, root % (1 + n % 40)}, n % 2 == 0);
  EXPECT_EQ(kept->schedule().collective.nranks, 3);
}

}  // namespace
}  // namespace weft::test
