// Compares the bounds with published and hand-computed figures, and with brute force.
#include "algorithms/bounds/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "tests/simulator/machines.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

double bound(const Machine& machine, CollectiveKind kind, int root = 0) {
  const Bound result =
      throughput_bound(machine, {kind, static_cast<int>(gpus(machine).size()), root});
  EXPECT_TRUE(result.exact) << machine.name << " " << name(kind);
  return result.algbw_gbps;
}

// The published table: all_gather and reduce_scatter to four digits, all_reduce half of that.
void expect_gathers(const Machine& machine, double gbps) {
  const double tolerance = gbps * 5e-5;
  EXPECT_NEAR(bound(machine, CollectiveKind::kAllGather), gbps, tolerance) << machine.name;
  EXPECT_NEAR(bound(machine, CollectiveKind::kReduceScatter), gbps, tolerance) << machine.name;
  EXPECT_NEAR(bound(machine, CollectiveKind::kAllReduce), gbps / 2, tolerance) << machine.name;
}

TEST(Bounds, EqualThePublishedOnesOfNdv2) {
  expect_gathers(load_machine("ndv2"), 171.4286);
  expect_gathers(load_machine("ndv2-taccl"), 149.0683);
  expect_gathers(load_machine("ndv2x2"), 25);
  expect_gathers(load_machine("ndv2-tacclx2"), 19.04762);
  expect_gathers(load_machine("ndv2x4"), 16.66667);
}

TEST(Bounds, EqualThePublishedOnesOfDgx2) {
  expect_gathers(load_machine("dgx2"), 160);
  expect_gathers(load_machine("dgx2-teccl"), 133.3333);
  expect_gathers(load_machine("dgx2x2"), 167.7419);
  expect_gathers(load_machine("dgx2-tecclx2"), 141.9355);
}

TEST(Bounds, EqualThePublishedOneOfDgx2WhereOnlySomeGpusRelay) {
  const Machine m = switched(
      {.hosts = 2, .gpus = 16, .nics = 8, .switch_gbps = 125, .nic_gbps = 12.5, .sk1 = true});
  EXPECT_NEAR(bound(m, CollectiveKind::kAllGather), 129.0323, 0.005);
}

TEST(Bounds, EqualThePublishedOnesOfDgxA100) {
  expect_gathers(load_machine("dgx-a100"), 342.8571);
  expect_gathers(load_machine("dgx-a100x2"), 346.6667);
  expect_gathers(load_machine("dgx-a100x4"), 266.6667);
  expect_gathers(load_machine("dgx-a100x8"), 228.5714);
}

TEST(Bounds, EqualThePublishedOnesOfDgxH100) {
  expect_gathers(load_machine("dgx-h100"), 514.2857);
  expect_gathers(load_machine("dgx-h100x2"), 533.3333);
  expect_gathers(load_machine("dgx-h100x4"), 516.1290);
  expect_gathers(load_machine("dgx-h100x8"), 457.1429);
  expect_gathers(load_machine("dgx-h100x16"), 426.6667);
}

TEST(Bounds, EqualThePublishedOnesOfMi250) {
  expect_gathers(load_machine("mi250"), 342.8571);
  expect_gathers(load_machine("mi250x2"), 354.1333);
  expect_gathers(load_machine("mi250x4"), 341.3333);
}

TEST(Bounds, EqualThePublishedOnesOfAllToAll) {
  EXPECT_NEAR(bound(load_machine("ndv2x2"), CollectiveKind::kAllToAll), 3.125, 1e-6);
  EXPECT_NEAR(bound(load_machine("dgx2-tecclx2"), CollectiveKind::kAllToAll), 12.5, 1e-6);
}

TEST(Bounds, OfAllToAllOn128GpusAreSolvedExactly) {
  // Half of the 16 hosts' data: each host's NICs send 8 * 15/16 of an array.
  EXPECT_NEAR(bound(load_machine("dgx-h100x16"), CollectiveKind::kAllToAll),
              8 * 50 / (8 * 15.0 / 16), 1e-4);
}

TEST(Bounds, OfAllToAllAreSetByHopsWhereNoCutIsNarrow) {
  // In a circle of 5, every rank's data crosses 1+1+2+2 links, and there are 2 links per rank.
  EXPECT_NEAR(bound(circle(5, 30, 0), CollectiveKind::kAllToAll), 5 * 2 * 30 / 6.0, 1e-6);
  EXPECT_NEAR(bound(mesh(6, 10, 0), CollectiveKind::kAllToAll), 60, 1e-6);
}

// Too irregular to solve. The hosts are connected by no more than 15.5 NICs of 16 GB/s.
TEST(Bounds, OfAllToAllFindTheCutOfAMachineWithASlowNic) {
  const Machine m = with_half_nic(load_machine("mi250x2"), "h0.nic0");
  const Bound result = throughput_bound(m, {CollectiveKind::kAllToAll, 32, 0});
  EXPECT_NEAR(result.algbw_gbps, 15.5 * 16 * 32 / (16 * 16), 1e-6);
}

TEST(Bounds, OfRootedCollectivesFollowTheRoot) {
  const Machine m = line(4, 20, 0);
  for (const int root : {0, 1, 3}) {
    EXPECT_NEAR(bound(m, CollectiveKind::kBroadcast, root), 20, 1e-9);
    EXPECT_NEAR(bound(m, CollectiveKind::kReduce, root), 20, 1e-9);
  }
  EXPECT_NEAR(bound(m, CollectiveKind::kScatter, 0), 20 * 4 / 3.0, 1e-9);
  EXPECT_NEAR(bound(m, CollectiveKind::kScatter, 1), 20 * 4 / 2.0, 1e-9);
  EXPECT_NEAR(bound(m, CollectiveKind::kGather, 3), 20 * 4 / 3.0, 1e-9);
}

TEST(Bounds, TellTheDirectionsOfALinkApart) {
  Machine m = line(2, 10, 0);
  m.links[1].gbps = 4;  // from GPU 1 to GPU 0
  EXPECT_NEAR(bound(m, CollectiveKind::kBroadcast, 0), 10, 1e-9);
  EXPECT_NEAR(bound(m, CollectiveKind::kReduce, 0), 4, 1e-9);
  EXPECT_NEAR(bound(m, CollectiveKind::kGather, 0), 8, 1e-9);
  EXPECT_NEAR(bound(m, CollectiveKind::kScatter, 0), 20, 1e-9);
}

TEST(Bounds, NameTheLinksThatLimit) {
  const Machine m = load_machine("ndv2x2");
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
    const Bound result = throughput_bound(m, {kind, 16, 0});
    ASSERT_FALSE(result.narrow.empty()) << name(kind);
    for (const int l : result.narrow) EXPECT_EQ(m.links[static_cast<size_t>(l)].gbps, 12.5);
  }
}

TEST(Bounds, OfUnconnectedGpusAreZero) {
  Machine m = line(3, 10, 0);
  m.links.resize(2);
  EXPECT_EQ(bound(m, CollectiveKind::kAllGather), 0);
  EXPECT_EQ(bound(m, CollectiveKind::kAllReduce), 0);
  EXPECT_EQ(bound(m, CollectiveKind::kAllToAll), 0);
  EXPECT_EQ(bound(m, CollectiveKind::kBroadcast), 0);
}

TEST(Bounds, OfOneRankAreInfiniteAndOfTooManyRefused) {
  const Machine m = line(2, 10, 0);
  EXPECT_TRUE(std::isinf(throughput_bound(m, {CollectiveKind::kAllGather, 1, 0}).algbw_gbps));
  EXPECT_THROW(throughput_bound(m, {CollectiveKind::kAllGather, 3, 0}), Error);
  EXPECT_THROW(throughput_bound(m, {CollectiveKind::kBroadcast, 2, 2}), Error);
}

// Tries all sets of nodes. The flows must find the same cut.
double least_ratio(const Machine& m) {
  const size_t n = m.nodes.size();
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t set = 1; set < (1u << n); set++) {
    int inside = 0, all = 0;
    for (size_t v = 0; v < n; v++) {
      if (m.nodes[v].type != NodeType::kGpu) continue;
      all++;
      inside += (set >> v) & 1;
    }
    if (inside == 0 || inside == all) continue;
    double capacity = 0;
    for (const Link& link : m.links)
      if (((set >> link.from) & 1) != 0 && ((set >> link.to) & 1) == 0) capacity += link.gbps;
    least = std::min(least, capacity / inside);
  }
  return least;
}

// The same for the data that can be delivered to a GPU. Only GPUs copy. So a set of nodes receives
// at most what its links from outside and from its own GPUs carry.
double least_delivery(const Machine& m) {
  const size_t n = m.nodes.size();
  const auto gpu = [&](int v) { return m.nodes[static_cast<size_t>(v)].type == NodeType::kGpu; };
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t set = 1; set < (1u << n); set++) {
    int inside = 0;
    for (size_t v = 0; v < n; v++) inside += gpu(static_cast<int>(v)) ? (set >> v) & 1 : 0;
    if (inside == 0) continue;
    double capacity = 0;
    for (const Link& link : m.links)
      if (((set >> link.to) & 1) != 0 && (((set >> link.from) & 1) == 0 || gpu(link.from)))
        capacity += link.gbps;
    least = std::min(least, capacity / inside);
  }
  return least;
}

TEST(Bounds, OfAllGatherAreTheLeastRatioOfAllCutsAndDeliveriesOfRandomMachines) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 90; i++) {
    const int n = 2 + static_cast<int>(i % 6);
    const bool hub = i >= 60;  // delivery seldom limits other machines
    const Machine m = hub ? random_hub(n, mix(seed, i)) : random_machine(n, mix(seed, i));
    const double cut = n * least_ratio(m), delivery = n * least_delivery(m) / (n - 1);
    const Bound found = throughput_bound(m, {CollectiveKind::kAllGather, n, 0});
    EXPECT_NEAR(found.algbw_gbps, std::min(cut, delivery), 1e-6) << m.name;
    EXPECT_EQ(found.exact, !(delivery < cut * (1 - 1e-9))) << m.name;
    if (hub) {
      EXPECT_LT(delivery, cut * (1 - 1e-9)) << m.name;
    }
  }
}

// A switch with four GPUs without peer-to-peer access: 24 GB/s up to the CPU, and down again. Each
// GPU gets 7 of 8 blocks, all through the switch's one link. A root sends everything to the four
// GPUs of the other switch.
TEST(Bounds, DoNotLetSwitchesCopy) {
  const Machine m = load_machine("rtx4090-8x");
  const auto limit = [&](CollectiveKind kind) {
    const Bound result = throughput_bound(m, {kind, 8, 0});
    EXPECT_FALSE(result.exact);
    return result.algbw_gbps;
  };
  EXPECT_NEAR(limit(CollectiveKind::kAllGather), 24.0 / 4 * 8 / 7, 1e-9);
  EXPECT_NEAR(limit(CollectiveKind::kReduceScatter), 24.0 / 4 * 8 / 7, 1e-9);
  EXPECT_NEAR(limit(CollectiveKind::kAllReduce), 12.0 / 4 * 8 / 7, 1e-9);
  EXPECT_NEAR(limit(CollectiveKind::kBroadcast), 24.0 / 4, 1e-9);
  EXPECT_NEAR(limit(CollectiveKind::kReduce), 24.0 / 4, 1e-9);
}

// The literature's bound for dgx2x2 needs NICs that pass data on between their two GPUs. Without
// that, two GPUs together receive from two links of the NVSwitch and one NIC.
TEST(Bounds, OfDgx2NeedNicsThatPassDataOn) {
  for (const auto& [name, with, switch_gbps] :
       {std::tuple{"dgx2x2", 167.7419, 150.0}, std::tuple{"dgx2-tecclx2", 141.9355, 125.0}}) {
    Machine m = load_machine(name);
    EXPECT_NEAR(bound(m, CollectiveKind::kAllGather), with, 1e-3);
    for (Node& node : m.nodes) node.facts.erase("loopback");
    const Bound without = throughput_bound(m, {CollectiveKind::kAllGather, 32, 0});
    EXPECT_NEAR(without.algbw_gbps, (2 * switch_gbps + 12.5) / 2 * 32 / 31, 1e-9);
  }
}

// Every cut bounds the all-to-all too. The flow bound is never above it.
TEST(Bounds, OfAllToAllAreNeverAboveACutOfRandomMachines) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 40; i++) {
    const int n = 2 + static_cast<int>(i % 6);
    const Machine m = random_machine(n, mix(seed, i));
    const double flow = bound(m, CollectiveKind::kAllToAll);
    EXPECT_GT(flow, 0);
    for (uint32_t set = 1; set < (1u << m.nodes.size()); set++) {
      int inside = 0;
      double capacity = 0;
      for (int v = 0; v < n; v++) inside += (set >> v) & 1;
      for (const Link& link : m.links)
        if (((set >> link.from) & 1) != 0 && ((set >> link.to) & 1) == 0) capacity += link.gbps;
      if (inside == 0 || inside == n) continue;
      ASSERT_LE(flow, n * capacity / (inside * (n - inside)) + 1e-6) << m.name;
    }
  }
}

// Adds the shortest path from the source to every other rank to the load of the links.
void route(const Machine& m, int n, int source, const std::vector<double>& lengths,
           std::vector<double>& load) {
  std::vector<double> distance(m.nodes.size(), std::numeric_limits<double>::infinity());
  std::vector<size_t> via(m.nodes.size(), 0);
  distance[static_cast<size_t>(source)] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t l = 0; l < m.links.size(); l++) {
      const auto from = static_cast<size_t>(m.links[l].from);
      const auto to = static_cast<size_t>(m.links[l].to);
      if (distance[from] + lengths[l] >= distance[to] - 1e-15) continue;
      distance[to] = distance[from] + lengths[l];
      via[to] = l;
      changed = true;
    }
  }
  for (int target = 0; target < n; target++)
    for (int v = target; v != source; v = m.links[via[static_cast<size_t>(v)]].from)
      load[via[static_cast<size_t>(v)]]++;
}

double worst(const Machine& m, const std::vector<double>& load) {
  double most = 0;
  for (size_t l = 0; l < load.size(); l++) most = std::max(most, load[l] / m.links[l].gbps);
  return most;
}

// Routes all pairs again and again over links that get longer the more they carry. Returns the
// throughput of the average of the later rounds, which is a flow that exists.
double routed(const Machine& m, int n, int rounds) {
  std::vector<double> load(m.links.size(), 0.0), settled, lengths;
  for (const Link& link : m.links) lengths.push_back(1 / link.gbps);
  for (int round = 0; round < rounds; round++) {
    if (round == rounds / 2) settled = load;
    for (int source = 0; source < n; source++) route(m, n, source, lengths, load);
    const double most = worst(m, load);
    for (size_t l = 0; l < load.size(); l++)
      lengths[l] = std::exp(80 * (load[l] / m.links[l].gbps / most - 1)) / m.links[l].gbps;
  }
  for (size_t l = 0; l < load.size(); l++) load[l] -= settled[l];
  const int later = rounds - rounds / 2;  // rounds that are not in `settled`
  return n * later / worst(m, load);
}

TEST(Bounds, OfAllToAllAreReachedByAFlow) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 12; i++) {
    const int n = 3 + static_cast<int>(i % 4);
    const Machine m = random_machine(n, mix(seed, i));
    const double found = routed(m, n, 3000), limit = bound(m, CollectiveKind::kAllToAll);
    EXPECT_LE(found, limit * (1 + 1e-9)) << m.name;
    EXPECT_GE(found, limit * 0.95) << m.name;
  }
}

TEST(Bounds, OfAllToAllSayWhenTheyAreNotExact) {
  const Machine m = random_machine(40, 3);
  const Bound result = throughput_bound(m, {CollectiveKind::kAllToAll, 40, 0});
  EXPECT_FALSE(result.exact);
  const double found = routed(m, 40, 200);
  EXPECT_GE(result.algbw_gbps, found);
  EXPECT_LE(result.algbw_gbps, 1.7 * found);
}

}  // namespace
}  // namespace weft::test
