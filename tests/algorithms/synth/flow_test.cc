// The flow engine: routes of alltoall, gather and scatter.
#include "algorithms/synth/flow/flow.h"

#include <gtest/gtest.h>

#include <map>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/network.h"
#include "tests/algorithms/synth/transfer_checks.h"
#include "tests/simulator/machines.h"
#include "tests/support/cpu_time.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

int count(const Machine& machine) { return static_cast<int>(gpus(machine).size()); }

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllToAll, CollectiveKind::kGather,
                                     CollectiveKind::kScatter};

Schedule woven(const Machine& machine, const Routing& routing) {
  WeaveOptions options;
  options.machine = &machine;
  options.fuse = false;
  options.ports = true;
  return weave(routing, options);
}

// The share of the bound that the busiest link allows.
double ratio(const Machine& machine, const Collective& collective) {
  const Routing routing = route_flow(machine, collective);
  EXPECT_EQ(transfer_error(machine, routing), "") << machine.name;
  return load_algbw(machine, routing) / throughput_bound(machine, collective).algbw_gbps;
}

TEST(FlowEngine, ReachesTheBoundOfAllToAllOnTheMachinesOfTheCatalogue) {
  for (const char* name : {"dgx1v",        "ndv2x2",     "ndv2x4",     "dgx2",     "dgx2x2",
                           "dgx2-tecclx2", "dgx-a100x2", "dgx-a100x4", "dgx-h100", "dgx-h100x2",
                           "dgx-h100x4",   "mi250",      "mi250x2",    "pcie-4x",  "pcie-8x",
                           "pcie-8x-1nic", "rtx4090-4x", "rtx4090-8x", "l20-8x",   "gb200-nvl72"}) {
    const Machine m = load_machine(name);
    EXPECT_GE(ratio(m, {CollectiveKind::kAllToAll, std::min(count(m), 32)}), 0.99) << name;
  }
}

// With 1 GiB, latency included.
TEST(FlowEngine, KeepsLinksBusyInTheSimulator) {
  constexpr double kBytes = 1 << 30;
  for (const char* name : {"dgx1v", "ndv2x2", "dgx2", "dgx-h100x2", "mi250", "pcie-8x"}) {
    const Machine m = load_machine(name);
    const Collective c{CollectiveKind::kAllToAll, count(m)};
    const VerifiedSchedule proved = verify(woven(m, route_flow(m, c)), false, kWovenFifoDepth);
    EXPECT_GE(simulate(m, proved.schedule(), kBytes).algbw_gbps,
              0.98 * throughput_bound(m, c).algbw_gbps)
        << name;
  }
}

TEST(FlowEngine, BeatsTheFiguresOfPublishedSynthesizers) {
  const std::pair<const char*, double> figures[] = {{"ndv2x2", 3.1}, {"dgx2-tecclx2", 12.4}};
  for (const auto& [name, gbps] : figures) {
    const Machine m = load_machine(name);
    const Routing routing = route_flow(m, {CollectiveKind::kAllToAll, count(m)});
    EXPECT_GE(simulate(m, woven(m, routing), 1 << 30).algbw_gbps, gbps) << name;
  }
}

TEST(FlowEngine, GathersAndScattersAtTheBound) {
  for (const char* name : {"dgx1v", "ndv2x2", "dgx2x2", "dgx-h100x2", "mi250", "pcie-8x"})
    for (const CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter})
      for (const int root : {0, 5}) {
        const Machine m = load_machine(name);
        EXPECT_GE(ratio(m, {kind, count(m), root}), 0.985) << name << " root " << root;
      }
}

TEST(FlowEngine, ComesNearTheBoundOfBrokenMachines) {
  std::vector<Machine> broken;
  for (const char* name : {"dgx1v", "ndv2x2", "mi250", "dgx-h100x2"}) {
    const Machine m = load_machine(name);
    broken.push_back(without_link(m, 0));
    broken.push_back(without_gpu(m, 3));
  }
  broken.push_back(with_half_nic(load_machine("ndv2x2"), "h0.nic0"));
  broken.push_back(with_half_nic(load_machine("dgx-h100x2"), "h0.nic0"));
  broken.push_back(join({without_gpu(load_machine("dgx-h100"), 2), load_machine("dgx-h100")}));
  broken.push_back(join({load_machine("pcie-4x"), load_machine("dgx1v")}));
  for (const Machine& m : broken)
    for (const CollectiveKind kind : kKinds)
      EXPECT_GE(ratio(m, {kind, count(m), 0}), 0.98)
          << m.name << " with " << count(m) << " GPUs, " << name(kind);
}

TEST(FlowEngine, ComesNearTheBoundOfRandomMachines) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(12)); i++) {
    const int n = 2 + static_cast<int>(mix(seed, i) % 8);
    const Machine m = random_machine(n, mix(seed, i + 1000));
    for (const CollectiveKind kind : kKinds) {
      const int root = static_cast<int>(mix(seed, i + 2000) % static_cast<uint64_t>(n));
      EXPECT_GE(ratio(m, {kind, n, root}), 0.85) << name(kind) << " of " << n << " ranks";
    }
  }
}

// An NVLink box whose GPUs are also on a slow PCIe switch. GPUs without a common NVLink send
// through a neighbour, because that path is wider.
TEST(FlowEngine, PrefersTwoNvlinkHopsToOneOverPcie) {
  Machine m = load_machine("dgx1v");
  const int sw = add_node(m, "pcie", NodeType::kSwitch);
  for (const int gpu : gpus(m)) connect(m, gpu, sw, LinkType::kPcie, 1, 1.5);
  const Routing routing = route_flow(m, {CollectiveKind::kAllToAll, 8});
  double pcie = 0, all = 0;
  for (const Transfer& t : routing.transfers) {
    all++;
    pcie += m.links[t.links[0]].type == LinkType::kPcie;
  }
  EXPECT_LT(pcie, all * 0.05);
  EXPECT_GE(load_algbw(m, routing), 75);  // as NVLink alone allows
}

// The same box with NVLinks no wider than PCIe. Relays would only add load.
TEST(FlowEngine, UsesPcieWhereRelaysAreNotBetter) {
  Machine m = load_machine("dgx1v");
  for (Link& link : m.links)
    if (link.type == LinkType::kNvlink) link.gbps = 2;
  const int sw = add_node(m, "pcie", NodeType::kSwitch);
  for (const int gpu : gpus(m)) connect(m, gpu, sw, LinkType::kPcie, 24, 1.5);
  const Routing routing = route_flow(m, {CollectiveKind::kAllToAll, 8});
  double direct = 0;
  for (const Transfer& t : routing.transfers) direct += m.links[t.links[0]].type == LinkType::kPcie;
  EXPECT_GT(direct, 0.5 * static_cast<double>(routing.transfers.size()));
  EXPECT_GE(ratio(m, {CollectiveKind::kAllToAll, 8}), 0.95);
}

// One GPU of a pair has lost its neighbour. It also relays for others, over its own NIC.
TEST(FlowEngine, SpreadsRelaysOverRanksWithoutChangingAnyLoad) {
  const auto loads = [](const Routing& routing) {
    std::map<int32_t, int> load;
    for (const Transfer& t : routing.transfers)
      for (const int32_t l : t.links) load[l]++;
    return load;
  };
  const auto fullest_between_hosts = [](const Routing& routing) {
    std::map<std::vector<int32_t>, int> hops;
    int most = 0;
    for (const Transfer& t : routing.transfers)
      if (t.from / 16 != t.to / 16) most = std::max(most, ++hops[t.links]);
    return most;
  };
  const Machine uneven = without_gpu(load_machine("dgx2x2"), 30);
  const Routing routing = route_flow(uneven, {CollectiveKind::kAllToAll, 31});
  const Routing spread = spread_relays(uneven, routing);
  EXPECT_EQ(transfer_error(uneven, spread), "");
  EXPECT_EQ(loads(spread), loads(routing));
  EXPECT_GT(fullest_between_hosts(routing), 8);
  EXPECT_LE(fullest_between_hosts(spread), 2);
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(8)); i++) {
    const int n = 3 + static_cast<int>(mix(seed, i) % 8);
    const Machine m = random_machine(n, mix(seed, i + 1000));
    for (const CollectiveKind kind : kKinds) {
      const Routing before = route_flow(m, {kind, n, 1}), after = spread_relays(m, before);
      EXPECT_EQ(transfer_error(m, after), "") << name(kind) << " of " << n << " ranks";
      EXPECT_EQ(loads(after), loads(before)) << name(kind) << " of " << n << " ranks";
    }
  }
}

TEST(FlowEngine, Routes128GpusInSeconds) {
  for (const char* name : {"dgx-h100x16", "ndv2x16"}) {
    const Machine m = load_machine(name);
    const double begin = cpu_seconds();
    const Routing routing = route_flow(m, {CollectiveKind::kAllToAll, 128});
    EXPECT_TRUE(in_time(cpu_seconds() - begin, 3)) << name;
    EXPECT_EQ(routing.chunks, 1) << name;
  }
}

TEST(FlowEngine, GivesTheSameRoutesEveryTime) {
  const Machine m = load_machine("mi250");
  const Routing a = route_flow(m, {CollectiveKind::kAllToAll, 16});
  const Routing b = route_flow(m, {CollectiveKind::kAllToAll, 16});
  ASSERT_EQ(a.transfers.size(), b.transfers.size());
  for (size_t i = 0; i < a.transfers.size(); i++) {
    EXPECT_EQ(a.transfers[i].piece, b.transfers[i].piece);
    EXPECT_EQ(a.transfers[i].links, b.transfers[i].links);
    EXPECT_EQ(a.transfers[i].begin_us, b.transfers[i].begin_us);
  }
}

TEST(FlowEngine, SaysWhyAMachineIsImpossible) {
  Machine m = load_machine("dgx1v");
  const int lonely = gpus(m)[5];
  std::erase_if(m.links, [&](const Link& l) { return l.to == lonely; });
  try {
    route_flow(m, {CollectiveKind::kAllToAll, 8});
    FAIL() << "a GPU that cannot be reached was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "dgx1v: GPU g0 cannot reach GPU g5, not even through other GPUs");
  }
  EXPECT_THROW(route_flow(m, {CollectiveKind::kAllToAll, 9}), Error);
  EXPECT_THROW(route_flow(m, {CollectiveKind::kAllGather, 8}), Error);
}

TEST(FlowEngine, HasNothingToDoForOneRank) {
  const Routing routing = route_flow(load_machine("dgx1v"), {CollectiveKind::kAllToAll, 1});
  EXPECT_TRUE(routing.transfers.empty());
}

}  // namespace
}  // namespace weft::test
