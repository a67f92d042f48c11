// The forest engine: trees that reach every rank, overload no link and are short.
#include "algorithms/synth/forest/forest.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/forest/flatten.h"
#include "algorithms/synth/forest/forest_graph.h"
#include "algorithms/synth/forest/pack.h"
#include "algorithms/synth/forest/split.h"
#include "algorithms/synth/forest/symmetry.h"
#include "algorithms/synth/routing/order.h"
#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"
#include "tests/algorithms/synth/transfer_checks.h"
#include "tests/algorithms/synth/whole_machines.h"
#include "tests/simulator/machines.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Hops of the longest path from a root.
int deepest(const Forest& forest) {
  int most = 0;
  for (const RoutedTree& tree : forest.routed) {
    std::vector<int> depth(static_cast<size_t>(forest.collective.nranks), 0);
    for (const Transfer& e : tree.edges) {
      const int at = depth[static_cast<size_t>(e.from)] + 1;
      depth[static_cast<size_t>(e.to)] = at;
      most = std::max(most, at);
    }
  }
  return most;
}

// The throughput that the busiest link allows.
double load_gbps(const Machine& machine, const Forest& forest) {
  std::vector<double> busy(machine.links.size(), 0);
  double most = 0;
  for (const RoutedTree& tree : forest.routed)
    for (const Transfer& e : tree.edges)
      for (const int32_t l : e.links)
        most = std::max(
            most, busy[static_cast<size_t>(l)] += 1 / machine.links[static_cast<size_t>(l)].gbps);
  const int blocks = forest.collective.rooted() ? 1 : forest.collective.nranks;
  return forest.trees * blocks / most;
}

TEST(Forest, PacksTreesThatReachEveryRankAndOverloadNoLink) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 20; i++) {
    const Machine machine = random_machine(3 + static_cast<int>(i % 6), mix(seed, i));
    const Machine ways = flow_graph(machine).machine;
    const auto n = static_cast<int>(gpus(machine).size());
    ForestDemand demand{n, std::vector<int64_t>(static_cast<size_t>(n), 3)};
    double seconds = least_seconds(ways, demand, 1, 1 << 12);
    SplitGraph split;
    do {
      split = split_off(ways, ForestGraph(ways, n, seconds), demand);
      seconds *= 1.1;
    } while (!split.fits);
    std::vector<int64_t> used(static_cast<size_t>(n * n), 0);
    std::vector<int64_t> roots(static_cast<size_t>(n), 0);
    for (const PackedTree& tree : pack_trees(split.graph, demand)) {
      std::vector<bool> reached(static_cast<size_t>(n), false);
      reached[static_cast<size_t>(tree.root)] = true;
      roots[static_cast<size_t>(tree.root)] += tree.count;
      EXPECT_EQ(tree.edges.size(), static_cast<size_t>(n) - 1);
      for (const TreeEdge& e : tree.edges) {
        EXPECT_TRUE(reached[static_cast<size_t>(e.from)]);
        EXPECT_FALSE(reached[static_cast<size_t>(e.to)]);
        reached[static_cast<size_t>(e.to)] = true;
        used[static_cast<size_t>(e.from * n + e.to)] += tree.count;
      }
    }
    EXPECT_EQ(roots, demand.roots) << "seed " << seed;
    for (int a = 0; a < n; a++)
      for (int b = 0; b < n; b++)
        if (a != b) {
          EXPECT_LE(used[static_cast<size_t>(a * n + b)], split.graph.units(a, b));
        }
  }
}

TEST(Forest, KeepsThePhysicalPathOfWhatItSplitsOff) {
  const Machine machine = load_machine("dgx-h100x2");
  const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kAllGather));
  const Machine ways = flow_graph(machine).machine;
  for (const RoutedTree& tree : forest.routed)
    for (const Transfer& e : tree.edges) {
      int node = gpus(ways)[static_cast<size_t>(e.from)];
      for (const int32_t l : e.links) {
        ASSERT_EQ(ways.links[static_cast<size_t>(l)].from, node);
        node = ways.links[static_cast<size_t>(l)].to;
      }
      EXPECT_EQ(node, gpus(ways)[static_cast<size_t>(e.to)]);
    }
}

TEST(Forest, OfARackAroundOneSwitchIsThatOfAFewRootsTurned) {
  const Machine machine = load_machine("gb200-nvl72");
  const std::optional<Rotation> rotation = find_rotation(machine);
  ASSERT_TRUE(rotation);
  EXPECT_EQ(rotation->step, 4);  // by one host
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const Forest forest = grow_forest(machine, of(machine, kind));
    EXPECT_EQ(forest.routed.size(), 72u * static_cast<size_t>(forest.trees));
    EXPECT_LE(deepest(forest), 3);
    EXPECT_GE(load_gbps(machine, forest),
              0.99 * throughput_bound(machine, forest.collective).algbw_gbps);
  }
}

TEST(Forest, IsTurnedOnlyWhereAllRanksAreAlike) {
  Machine machine = load_machine("gb200-nvl72");
  machine.links[0].gbps /= 2;
  EXPECT_FALSE(find_rotation(machine));
  EXPECT_EQ(find_rotation(load_machine("dgx-h100"))->step, 1);
}

TEST(Forest, OfABroadcastInARackIsShallow) {
  Machine machine = load_machine("gb200-nvl72");
  for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    const Forest forest = grow_forest(machine, of(machine, kind, 5));
    EXPECT_LE(deepest(forest), 5) << name(kind);  // 58 if ranks pass on in all trees
    EXPECT_GE(load_gbps(machine, forest), 0.995 * 1125) << name(kind);
  }
  // A rank that can send only half as much passes on less data.
  const int gpu = gpus(machine)[40];
  for (Link& link : machine.links)
    if (link.from == gpu && link.type == LinkType::kNvlink) link.gbps /= 2;
  const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kBroadcast, 5));
  EXPECT_LE(deepest(forest), 5);
  EXPECT_GE(load_gbps(machine, forest), 0.98 * 1125);
}

TEST(Forest, OfABroadcastOverManyHostsIsShallowAndUsesAllNics) {
  for (const int hosts : {5, 12, 16}) {
    const Machine machine = load_machine("dgx-h100x" + std::to_string(hosts));
    const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kBroadcast, 3));
    EXPECT_LE(deepest(forest), 7) << hosts;  // 7 inside the root's host; 17 for a chain of hosts
    EXPECT_NEAR(load_gbps(machine, forest), 400, 1e-6) << hosts;
  }
}

TEST(Forest, BroadcastsInAClusterWithASlowNicByShortWays) {
  const Machine machine = with_half_nic(load_machine("dgx-h100x8"), "h0.nic0");
  const Collective collective = of(machine, CollectiveKind::kBroadcast);
  ForestOptions options;
  options.most_trees = 64;
  const Forest forest = grow_forest(machine, collective, options);
  EXPECT_LE(deepest(forest), 12);  // 15 as first packed
  EXPECT_GE(load_gbps(machine, forest), 0.995 * throughput_bound(machine, collective).algbw_gbps);
}

// Trees with one link per edge: the uses of each link, and the sum of squared arrival times.
struct Shape {
  std::map<int32_t, int> uses;
  double squares = 0;
};
Shape shape_of(const Machine& machine, const std::vector<RoutedTree>& trees) {
  Shape shape;
  for (const RoutedTree& tree : trees) {
    std::vector<double> at(gpus(machine).size(), -1);
    at[static_cast<size_t>(tree.root)] = 0;
    for (const Transfer& e : tree.edges) {
      EXPECT_GE(at[static_cast<size_t>(e.from)], 0) << "a parent after its child";
      EXPECT_LT(at[static_cast<size_t>(e.to)], 0) << "a rank reached twice";
      const Link& link = machine.links[static_cast<size_t>(e.links.at(0))];
      EXPECT_EQ(std::pair(link.from, link.to), std::pair(e.from, e.to));
      at[static_cast<size_t>(e.to)] =
          at[static_cast<size_t>(e.from)] + link.us + 262.144 / link.gbps;
      shape.uses[e.links[0]]++;
      shape.squares += at[static_cast<size_t>(e.to)] * at[static_cast<size_t>(e.to)];
    }
    EXPECT_EQ(tree.edges.size(), at.size() - 1);
  }
  return shape;
}

TEST(Forest, IsFlattenedWithoutChangingWhatLinksCarry) {
  Machine machine = load_machine("mi250");
  std::erase_if(machine.nodes, [](const Node& n) { return n.type != NodeType::kGpu; });
  std::erase_if(machine.links, [](const Link& l) { return l.type != LinkType::kXgmi; });
  // Every root's tree is a depth-first search from that root.
  std::vector<RoutedTree> trees;
  for (int32_t root = 0; root < 16; root++) {
    RoutedTree tree{root, {}};
    std::vector<bool> reached(16, false);
    std::vector<int32_t> path = {root};
    reached[static_cast<size_t>(root)] = true;
    while (!path.empty()) {
      size_t next = machine.links.size();
      for (size_t i = 0; i < machine.links.size() && next == machine.links.size(); i++) {
        const size_t l = (i + static_cast<size_t>(root) * 7) % machine.links.size();
        if (machine.links[l].from == path.back() &&
            !reached[static_cast<size_t>(machine.links[l].to)])
          next = l;
      }
      if (next == machine.links.size()) {
        path.pop_back();
        continue;
      }
      const int32_t to = machine.links[next].to;
      tree.edges.push_back({0, path.back(), to, {static_cast<int32_t>(next)}, 0});
      reached[static_cast<size_t>(to)] = true;
      path.push_back(to);
    }
    trees.push_back(std::move(tree));
  }
  const Shape before = shape_of(machine, trees);
  flatten(machine, 16, trees);
  const Shape after = shape_of(machine, trees);
  EXPECT_EQ(after.uses, before.uses);
  EXPECT_LT(after.squares, 0.9 * before.squares);
}

TEST(Forest, OfDeepTreesIsOrderedTighterFromItsEnd) {
  const Machine machine = load_machine("mi250x2");
  const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kAllGather));
  ASSERT_TRUE(is_deep(forest));
  const auto makespan = [&](const OrderOptions& options) {
    std::vector<Transfer> transfers;
    for (size_t t = 0; t < forest.routed.size(); t++)
      for (Transfer e : forest.routed[t].edges) {
        e.piece = static_cast<int32_t>(t);
        transfers.push_back(std::move(e));
      }
    order_transfers(machine, 65536, options, transfers);
    double end = 0;
    for (const Transfer& t : transfers) {
      EXPECT_GE(t.begin_us, 0);
      double us = 0, slowest = 0;
      for (const int32_t l : t.links) {
        us += machine.links[static_cast<size_t>(l)].us;
        slowest = std::max(slowest, 65.536 / machine.links[static_cast<size_t>(l)].gbps);
      }
      end = std::max(end, t.begin_us + us + slowest);
    }
    return end;
  };
  const double once = makespan({1, 0, false});
  EXPECT_LT(makespan({1, 4, false}), once);
  EXPECT_LT(makespan({1, 4, true}), once);
}

}  // namespace
}  // namespace weft::test
