// Rings and chains that follow a machine, whatever numbers its GPUs have.
#include "src/planner/ordered_plans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "algorithms/catalogue/catalogue.h"
#include "src/planner/init_plans.h"
#include "src/schedule/verify.h"
#include "src/topology/graph/rank_machine.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using RankPair = std::pair<int, int>;

// The machine with its GPUs in another order.
Machine with_gpus_shuffled(const std::string& topo, uint64_t seed) {
  const Machine machine = load_machine(topo);
  std::vector<int> order = gpus(machine);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return reduce_to(machine, order);
}

class OrderedPlans : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  int host(int rank) const { return node(rank).host; }
  bool joined_by_nvlink(int a, int b) const {
    const std::vector<int> all = gpus(machine_);
    return std::any_of(machine_.links.begin(), machine_.links.end(), [&](const Link& link) {
      return link.type == LinkType::kNvlink && link.from == all[static_cast<size_t>(a)] &&
             link.to == all[static_cast<size_t>(b)];
    });
  }
  // Neighbours in the ring, each pair in both directions.
  std::set<RankPair> neighbours() const {
    const std::vector<int> order = ring_order(machine_);
    std::set<RankPair> pairs;
    for (size_t i = 0; i < order.size(); i++) {
      const int a = order[i], b = order[(i + 1) % order.size()];
      pairs.insert({a, b});
      pairs.insert({b, a});
    }
    return pairs;
  }

  const Machine machine_ = with_gpus_shuffled(
      std::get<0>(GetParam()), mix(test_seed(), static_cast<uint64_t>(std::get<1>(GetParam()))));

 private:
  const Node& node(int rank) const {
    return machine_.nodes[static_cast<size_t>(gpus(machine_)[static_cast<size_t>(rank)])];
  }
};

// Who sends to whom.
std::set<RankPair> sends_of(const Schedule& schedule) {
  std::set<RankPair> pairs;
  for (size_t r = 0; r < schedule.ranks.size(); r++)
    for (const Lane& lane : schedule.ranks[r].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to)
          if (to.kind == Operand::Kind::kPeer) pairs.insert({static_cast<int>(r), to.index});
  return pairs;
}

TEST_P(OrderedPlans, VisitEveryRankOnceOverNvlinksAndEveryHostInOneGo) {
  const std::vector<int> order = ring_order(machine_);
  const std::set<int> ranks(order.begin(), order.end());
  ASSERT_EQ(order.size(), gpus(machine_).size());
  EXPECT_EQ(ranks.size(), order.size());
  EXPECT_EQ(*ranks.begin(), 0);
  EXPECT_EQ(*ranks.rbegin(), static_cast<int>(order.size()) - 1);
  int crossings = 0;
  for (size_t i = 0; i < order.size(); i++) {
    const int a = order[i], b = order[(i + 1) % order.size()];
    if (host(a) != host(b)) {
      crossings++;
    } else {
      EXPECT_TRUE(joined_by_nvlink(a, b) && joined_by_nvlink(b, a)) << a << " and " << b;
    }
  }
  EXPECT_EQ(crossings, count_hosts(machine_) > 1 ? 2 : 0);
}

TEST_P(OrderedPlans, AreProvedAndUseBothDirectionsOfLinksOfTheRing) {
  const std::set<RankPair> ring = neighbours();
  const auto made = ordered_schedules(machine_);
  ASSERT_EQ(made.size(), 6u) << "five rings and a chain";
  for (const auto& imported : made) {
    SCOPED_TRACE(imported->path + " for " + std::string(name(imported->collective.kind)));
    ASSERT_NE(imported->out_of_place, nullptr);
    const Schedule& schedule = imported->out_of_place->schedule();
    EXPECT_NO_THROW(verify(schedule, false));
    const std::set<RankPair> sends = sends_of(schedule);
    for (const RankPair& pair : sends) EXPECT_TRUE(ring.contains(pair)) << pair.first;
    // A chain has no link between its ends. A root has nothing to receive, or nothing to send.
    const bool chain = imported->path == "ordered_chain", rooted = imported->collective.rooted();
    const size_t unused = chain || rooted ? 2 : 0;
    EXPECT_EQ(sends.size(), ring.size() - unused);
    const int root = imported->collective.root;
    for (const auto& [from, to] : sends)
      if (!rooted || (from != root && to != root)) {
        EXPECT_TRUE(sends.contains({to, from})) << from << " to " << to;
      }
  }
}

// Pairs that are on different hosts.
size_t between_hosts(const std::set<RankPair>& pairs, const Machine& machine) {
  const std::vector<int> all = gpus(machine);
  const auto host = [&](int rank) {
    return machine.nodes[static_cast<size_t>(all[static_cast<size_t>(rank)])].host;
  };
  return static_cast<size_t>(std::count_if(pairs.begin(), pairs.end(), [&](const RankPair& pair) {
    return host(pair.first) != host(pair.second);
  }));
}

// Sixteen hosts of eight GPUs, whatever numbers these have: a ring goes from host to host once.
TEST(ManyRanks, CrossHostsAsOftenAsThereAreHosts) {
  const Machine machine = with_gpus_shuffled("dgx-h100x16", test_seed());
  EXPECT_TRUE(ordered_schedules(machine).empty()) << "hierarchical plans are faster";
  const auto made = ordered_schedules(machine, true);
  ASSERT_EQ(made.size(), 6u);
  for (const auto& imported : made) {
    SCOPED_TRACE(imported->path + " for " + std::string(name(imported->collective.kind)));
    const size_t ways = between_hosts(sends_of(imported->out_of_place->schedule()), machine);
    EXPECT_LE(ways, 2u * 16u);
    EXPECT_GE(ways, 2u * 15u);
  }
}

// NCCL_ALGO=Ring leaves rings only.
TEST(ManyRanks, TakeTheRingThatFollowsTheMachineWhereRingsAreAskedFor) {
  const Machine machine = with_gpus_shuffled("dgx-h100x8", test_seed());
  Config config;
  config.cache.clear();
  config.synthesis_seconds = 0;
  InitPlansRequest request{
      config, 64, true, {}, machine, 8, [](const ImportedSchedule&) { return true; }};
  for (const int gpu : gpus(machine))
    request.setting.hosts.push_back(machine.nodes[static_cast<size_t>(gpu)].host);
  constexpr uint64_t kMuch = 64 << 20;
  for (const char* algo : {"", "ring"}) {
    config.algo = algo;
    const CommunicatorPlans plans = make_init_plans(request);
    EXPECT_EQ(plans.table.choose(CollectiveKind::kAllReduce, kMuch, false)->name,
              algo[0] == '\0' ? "hierarchical" : "ordered_ring");
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, OrderedPlans,
                         testing::Combine(testing::Values("dgx1v", "ndv2x2"), testing::Range(0, 4)),
                         [](const auto& on) {
                           return fmt::format("{}_{}", std::get<0>(on.param),
                                              std::get<1>(on.param));
                         });

}  // namespace
}  // namespace weft::test
