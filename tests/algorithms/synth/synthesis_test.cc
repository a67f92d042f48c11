// synthesize() comes close to the bound, on intact and on broken machines.
#include "algorithms/synth/synthesis.h"

#include <gtest/gtest.h>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/forest/forest.h"
#include "src/base/error.h"
#include "src/schedule/schedule_json.h"
#include "src/simulator/lane_simulation.h"
#include "src/topology/graph/flow_graph.h"
#include "tests/algorithms/synth/transfer_checks.h"
#include "tests/algorithms/synth/whole_machines.h"
#include "tests/simulator/machines.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Simulates every slice, because the time that synthesize() returns may be an estimate.
Synthesized made(const Machine& machine, CollectiveKind kind, double bytes = kGiB) {
  Synthesized result = synthesize(machine, of(machine, kind), bytes);
  const weft::Simulation all = simulate(machine, result.schedule, bytes);
  EXPECT_NEAR(result.time_us, all.time_us, all.time_us * (result.estimated ? 0.02 : 0.001));
  result.time_us = all.time_us;
  result.algbw_gbps = all.algbw_gbps;
  result.ratio = all.algbw_gbps / result.bound_gbps;
  return result;
}

// Removes both directions between two nodes.
void unplug(Machine& machine, const char* a, const char* b) {
  const int x = find_node(machine, a), y = find_node(machine, b);
  const size_t before = machine.links.size();
  std::erase_if(machine.links, [&](const Link& l) {
    return (l.from == x && l.to == y) || (l.from == y && l.to == x);
  });
  ASSERT_LT(machine.links.size(), before) << a << " " << b;
}

void remove_node(Machine& machine, int node) {
  std::erase_if(machine.links, [&](const Link& l) { return l.from == node || l.to == node; });
  for (Link& l : machine.links) {
    l.from -= l.from > node ? 1 : 0;
    l.to -= l.to > node ? 1 : 0;
  }
  machine.nodes.erase(machine.nodes.begin() + node);
}

TEST(Synthesis, KeepsAllLinksBusyWhereTreesAreDeep) {
  const Machine machine = load_machine("mi250x2");
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const Synthesized result = made(machine, kind);
    EXPECT_GE(result.ratio, 0.99) << name(kind);
    EXPECT_TRUE(result.verified && result.in_place) << name(kind);
  }
}

TEST(Synthesis, BroadcastsInARackAtThePaceOfTheRoot) {
  const Synthesized result = made(load_machine("gb200-nvl72"), CollectiveKind::kBroadcast);
  EXPECT_GE(result.ratio, 0.98);
  EXPECT_TRUE(result.verified && result.in_place);
}

TEST(Synthesis, ComesWithinAPercentOfTheBoundAtALargeSize) {
  for (const char* topo :
       {"dgx1v", "ndv2x2", "dgx2", "dgx-h100x2", "pcie-4x", "pcie-8x", "l20-8x", "mi250"})
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                      CollectiveKind::kAllReduce, CollectiveKind::kBroadcast}) {
      const Synthesized result = made(load_machine(topo), kind);
      EXPECT_GE(result.ratio, 0.99) << topo << ' ' << name(kind);
      EXPECT_LE(result.ratio, 1.0001) << topo << ' ' << name(kind);
      EXPECT_TRUE(result.verified && result.in_place) << topo << ' ' << name(kind);
    }
}

TEST(Synthesis, ComposesClustersOfEqualHosts) {
  const Machine machine = load_machine("dgx-a100x6");
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast}) {
    const Synthesized result = made(machine, kind);
    EXPECT_EQ(result.engine, "forest");
    EXPECT_GE(result.ratio, 0.98) << name(kind);
  }
}

TEST(Synthesis, CopesWithAMissingNvlink) {
  Machine machine = load_machine("dgx1v");
  unplug(machine, "g0", "g3");
  EXPECT_GE(made(machine, CollectiveKind::kAllGather).ratio, 0.98);
  EXPECT_GE(made(machine, CollectiveKind::kAllReduce).ratio, 0.98);
}

TEST(Synthesis, CopesWithANicAtHalfRate) {
  const Machine pair = with_half_nic(load_machine("dgx-h100x2"), "h0.nic3");
  EXPECT_GE(made(pair, CollectiveKind::kAllGather).ratio, 0.98);
  const Machine gcds = with_half_nic(load_machine("mi250x2"), "h0.nic0");
  EXPECT_GE(made(gcds, CollectiveKind::kAllToAll).ratio, 0.98);
  const Machine cluster = with_half_nic(load_machine("dgx-h100x8"), "h0.nic0");
  EXPECT_GE(made(cluster, CollectiveKind::kAllReduce).ratio, 0.98);
}

TEST(Synthesis, CopesWithSevenGpusOfEight) {
  for (const char* topo : {"dgx1v", "dgx-h100"}) {
    Machine machine = load_machine(topo);
    remove_node(machine, gpus(machine)[5]);
    EXPECT_GE(made(machine, CollectiveKind::kAllGather).ratio, 0.98) << topo;
    EXPECT_GE(made(machine, CollectiveKind::kReduceScatter).ratio, 0.98) << topo;
  }
}

TEST(Synthesis, CopesWithHostsOfDifferentSizes) {
  Machine machine = load_machine("dgx-a100x2");
  remove_node(machine, gpus(machine)[15]);
  remove_node(machine, gpus(machine)[14]);
  EXPECT_GE(made(machine, CollectiveKind::kAllGather).ratio, 0.98);
  // All NICs are busy only if the GPU with a NIC of its own relays for the others.
  machine = load_machine("dgx2x2");
  remove_node(machine, gpus(machine)[30]);
  EXPECT_GE(made(machine, CollectiveKind::kAllToAll).ratio, 0.98);
}

TEST(Synthesis, CopesWithAGpuThatHasNoNvlink) {
  Machine machine = load_machine("hgx-h200");
  const int gpu = gpus(machine)[2];
  std::erase_if(machine.links, [&](const Link& l) {
    return l.type == LinkType::kNvlink && (l.from == gpu || l.to == gpu);
  });
  EXPECT_GE(made(machine, CollectiveKind::kAllGather).ratio, 0.98);
}

// The share of transfers that cross a link of this type.
double share_over(const Machine& machine, const Forest& forest, LinkType type) {
  double crossed = 0, all = 0;
  for (const RoutedTree& tree : forest.routed)
    for (const Transfer& e : tree.edges) {
      all++;
      for (const int32_t l : e.links)
        if (machine.links[static_cast<size_t>(l)].type == type) {
          crossed++;
          break;
        }
    }
  return crossed / all;
}

// A DGX-1 with the PCIe tree that the catalogue's machine lacks. A switch has two GPUs, and each
// CPU has two switches, so four GPUs.
Machine dgx1_with_pcie(double pcie_gbps) {
  Machine machine = load_machine("dgx1v");
  const std::vector<int> ranks = gpus(machine);
  const int cpus[2] = {add_node(machine, "cpu0", NodeType::kCpu),
                       add_node(machine, "cpu1", NodeType::kCpu)};
  connect(machine, cpus[0], cpus[1], LinkType::kSocket, pcie_gbps, 0.5);
  for (int s = 0; s < 4; s++) {
    const int plx = add_node(machine, "plx" + std::to_string(s), NodeType::kSwitch);
    connect(machine, cpus[s / 2], plx, LinkType::kPcie, pcie_gbps, 0.5);
    for (int g = 2 * s; g < 2 * s + 2; g++)
      connect(machine, plx, ranks[static_cast<size_t>(g)], LinkType::kPcie, pcie_gbps, 0.5);
  }
  return machine;
}

TEST(Synthesis, RelaysOverNvlinkRatherThanCrossPcie) {
  const Machine machine = dgx1_with_pcie(10);
  const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kAllGather));
  EXPECT_LT(share_over(machine, forest, LinkType::kPcie), 0.15);
  EXPECT_GE(made(machine, CollectiveKind::kAllGather).algbw_gbps, 171.0);
}

TEST(Synthesis, UsesPcieWhereItIsTheWiderWay) {
  // Two pairs of GPUs, each with a slow NVLink, on one fast PCIe switch.
  Machine machine;
  for (int g = 0; g < 4; g++) add_node(machine, "g" + std::to_string(g), NodeType::kGpu);
  const int plx = add_node(machine, "plx", NodeType::kSwitch);
  for (int g = 0; g < 4; g++) connect(machine, g, plx, LinkType::kPcie, 48, 0.5);
  connect(machine, 0, 1, LinkType::kNvlink, 4, 0.7);
  connect(machine, 2, 3, LinkType::kNvlink, 4, 0.7);
  const Forest forest = grow_forest(machine, of(machine, CollectiveKind::kAllGather));
  EXPECT_GT(share_over(machine, forest, LinkType::kPcie), 0.85);
  EXPECT_GE(made(machine, CollectiveKind::kAllGather).ratio, 0.98);
}

TEST(Synthesis, RelaysRemoteTrafficOverNvlinkToTheGpuBesideTheNic) {
  // Two hosts of four GPUs on NVLink. Only the first GPU of each host has a NIC.
  Machine machine;
  int nics[2];
  for (int h = 0; h < 2; h++) {
    for (int g = 0; g < 4; g++)
      add_node(machine, "h" + std::to_string(h) + "g" + std::to_string(g), NodeType::kGpu, h);
    nics[h] = add_node(machine, "nic" + std::to_string(h), NodeType::kNic, h);
    const int first = nics[h] - 4;
    for (int a = 0; a < 4; a++)
      for (int b = a + 1; b < 4; b++)
        connect(machine, first + a, first + b, LinkType::kNvlink, 25, 0.7);
    connect(machine, first, nics[h], LinkType::kPcie, 12, 0.5);
  }
  const int network = add_node(machine, "net", NodeType::kSwitch, -1);
  for (const int nic : nics) connect(machine, nic, network, LinkType::kNetwork, 12, 1.3);
  const Synthesized result = made(machine, CollectiveKind::kAllGather);
  EXPECT_NEAR(result.bound_gbps, 24, 0.01);  // half of the data crosses in each direction
  EXPECT_GE(result.ratio, 0.99);
}

// A DGX-2 can sum in one step what comes from 15 peers.
TEST(Synthesis, TakesFewerStepsForNearlyTheSameTime) {
  const Machine machine = load_machine("dgx2");
  const Collective collective = of(machine, CollectiveKind::kAllReduce);
  SynthesisOptions fastest;
  fastest.worth_more_steps = 0;
  const Synthesized longer = synthesize(machine, collective, 1 << 26, fastest),
                    shorter = synthesize(machine, collective, 1 << 26);
  EXPECT_LT(shorter.steps * 2, longer.steps);
  EXPECT_LE(shorter.time_us, longer.time_us * (1 + SynthesisOptions().worth_more_steps * 1.01));
}

// A schedule with more lanes than a GPU has thread blocks fills links, but its steps take turns.
TEST(Synthesis, CountsWhatStepsOfLanesCostIfItIsTold) {
  const Machine machine = load_machine("dgx-h100x2");
  const Collective reduce = of(machine, CollectiveKind::kReduce);
  SynthesisOptions told;
  told.lanes = usual_cut(true);
  told.simulation.step_us = told.simulation.message_us = 0.5;
  told.simulation = quick_lanes(told.simulation, 16);
  SimulatedMachine simulated(machine);
  const auto in_lanes = [&](const Synthesized& result) {
    return simulate_lanes(simulated, step_graph(result.schedule), kGiB, *told.lanes,
                          told.simulation)
        .time_us;
  };
  const double best = in_lanes(synthesize(machine, reduce, kGiB, told)),
               by_links = in_lanes(synthesize(machine, reduce, kGiB));
  EXPECT_LT(best, 0.9 * by_links);
}

TEST(Synthesis, IsTheSameToTheLastByte) {
  const Machine machine = load_machine("dgx-a100x2");
  ScheduleFile first, second;
  first.schedule = made(machine, CollectiveKind::kAllReduce, 1 << 26).schedule;
  second.schedule = made(machine, CollectiveKind::kAllReduce, 1 << 26).schedule;
  EXPECT_EQ(write_schedule_json(first), write_schedule_json(second));
}

TEST(Synthesis, SaysInOneLineWhyThereIsNoSchedule) {
  const auto refusal = [](const Machine& machine, const char* engine) {
    SynthesisOptions options;
    options.engine = engine;
    try {
      synthesize(machine, of(machine, CollectiveKind::kAllGather), 1e6, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Machine machine = line(3, 10, 1);
  machine.name = "line";
  EXPECT_EQ(refusal(machine, "flow"),
            "no schedule for all_gather of 3 ranks on line; flow: not for all_gather");
  EXPECT_EQ(refusal(machine, "magic").substr(0, 29), "no engine is called 'magic' (");
  std::erase_if(machine.links, [](const Link& l) { return l.from == 1 && l.to == 2; });
  EXPECT_EQ(refusal(machine, ""), "line: not every GPU can reach every other one");
  for (Link& l : machine.links) l.gbps = 0;
  EXPECT_EQ(refusal(machine, ""), "line: not every GPU can reach every other one");
}

}  // namespace
}  // namespace weft::test
