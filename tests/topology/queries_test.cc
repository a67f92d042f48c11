// Queries on graphs: paths, affinity, hierarchy, pipelines. Also networks between hosts.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/catalogue/catalogue.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/graph/fingerprint.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/hierarchy.h"
#include "src/topology/graph/network.h"
#include "src/topology/graph/paths.h"
#include "src/topology/graph/pipeline.h"
#include "src/topology/graph/rank_machine.h"
#include "src/topology/graph/routes.h"
#include "src/topology/views/view.h"
#include "tests/topology/machines.h"

namespace weft::test {
namespace {

PathClass class_between(const Machine& machine, const char* from, const char* to) {
  return best_path(machine, find_node(machine, from), find_node(machine, to)).path_class;
}

// PCIe links of GPUs that a machine has for peer memory.
size_t pcie_of_gpus(const Machine& machine) {
  const Machine ways = peer_ways(machine);
  return static_cast<size_t>(
      std::count_if(ways.links.begin(), ways.links.end(), [&](const Link& l) {
        return l.type == LinkType::kPcie &&
               (ways.nodes[static_cast<size_t>(l.from)].type == NodeType::kGpu ||
                ways.nodes[static_cast<size_t>(l.to)].type == NodeType::kGpu);
      }));
}

TEST(PeerWays, HaveNoPcieWhereAllPairsHaveNvlink) {
  EXPECT_EQ(pcie_of_gpus(load_machine("hgx-h200")), 0u);
  EXPECT_EQ(pcie_of_gpus(load_machine("mi300x")), 0u);
  EXPECT_GT(pcie_of_gpus(load_machine("pcie-8x")), 0u);
  EXPECT_GT(pcie_of_gpus(load_machine("hgx-h200x2")), 0u) << "NICs are behind it";
  Machine broken = load_machine("hgx-h200");  // one GPU without NVLink
  std::erase_if(broken.links, [&](const Link& l) {
    const int gpu = gpus(broken)[0];
    return l.type == LinkType::kNvlink && (l.from == gpu || l.to == gpu);
  });
  EXPECT_GT(pcie_of_gpus(broken), 0u);
}

// NVLink joins all hosts of a rack. Kernels reach peer memory within their host only.
TEST(PeerWays, EndAtTheHost) {
  const Machine rack = load_machine("gb200-nvl72"), ways = peer_ways(rack);
  EXPECT_TRUE(links_hosts(rack));
  EXPECT_FALSE(links_hosts(ways));
  EXPECT_EQ(class_between(rack, "g0", "g4"), PathClass::kNvlink);
  EXPECT_EQ(class_between(ways, "g0", "g3"), PathClass::kNvlink);
  EXPECT_EQ(class_between(ways, "g4", "g7"), PathClass::kNvlink);
  EXPECT_EQ(class_between(ways, "g0", "g4"), PathClass::kNetwork);
  // Each host keeps its links: every GPU has one into its part of the switch and one out of it.
  const auto nvlinks = [](const Machine& machine) {
    return std::count_if(machine.links.begin(), machine.links.end(),
                         [](const Link& l) { return l.type == LinkType::kNvlink; });
  };
  EXPECT_EQ(nvlinks(ways), nvlinks(rack));
  // The catalogue has the rack's NICs and no switch between them.
  EXPECT_EQ(ways.links.size(), rack.links.size() + 2 * nodes_of(rack, NodeType::kNic).size());
  EXPECT_EQ(gpus(ways), gpus(rack)) << "ranks stay where they are";
  EXPECT_FALSE(links_hosts(load_machine("dgx-h100x2")));
}

// Two GPUs and two NICs are beside each CPU of the rack.
TEST(Routes, SpreadGpusOverNicsThatAreEquallyNear) {
  const Machine ways = peer_ways(load_machine("gb200-nvl72"));
  const FlowGraph graph = flow_graph(ways);
  Routes routes(graph.machine);
  const auto nics = nic_affinity(ways);
  for (const int from : {0, 1, 6, 7})
    for (const int to : {20, 21, 70, 71}) {
      std::vector<std::string> seen;
      int at = gpus(graph.machine)[static_cast<size_t>(from)];
      for (const int32_t l : routes.between(from, to)) {
        ASSERT_EQ(graph.machine.links[static_cast<size_t>(l)].from, at);
        at = graph.machine.links[static_cast<size_t>(l)].to;
        const Node& node = ways.nodes[static_cast<size_t>(graph.origin[static_cast<size_t>(at)])];
        if (node.type == NodeType::kNic) seen.push_back(node.id);
      }
      EXPECT_EQ(at, gpus(graph.machine)[static_cast<size_t>(to)]);
      const auto nic_of = [&](int rank) {
        return ways.nodes[static_cast<size_t>(nics[static_cast<size_t>(rank)].nic)].id;
      };
      EXPECT_EQ(seen, (std::vector{nic_of(from), nic_of(to)})) << from << " to " << to;
    }
}

// A cable from host to host, and switches that are linked to each other.
TEST(PeerWays, LeaveOutCablesAndTrunksBetweenHosts) {
  Machine two = load_machine("dgx-h100x2");
  const size_t links = two.links.size();
  connect(two, find_node(two, "h0.g0"), find_node(two, "h1.g0"), LinkType::kNvlink, 50, 0.7);
  EXPECT_TRUE(links_hosts(two));
  EXPECT_EQ(class_between(two, "h0.g0", "h1.g0"), PathClass::kNvlink);
  EXPECT_EQ(class_between(peer_ways(two), "h0.g0", "h1.g0"), PathClass::kNetwork);
  EXPECT_EQ(peer_ways(two).links.size(), links);
  Machine trunk = load_machine("dgx-h100x2");
  const auto is_nvswitch = [&](int node) {
    const std::string& model = trunk.nodes[static_cast<size_t>(node)].model;
    return model.find("NVSwitch") != std::string::npos;
  };
  std::vector<int> switches;
  for (const int node : nodes_of(trunk, NodeType::kSwitch))
    if (is_nvswitch(node)) switches.push_back(node);
  ASSERT_EQ(switches.size(), 2u);
  connect(trunk, switches[0], switches[1], LinkType::kNvlink, 3600, 0.35);
  EXPECT_EQ(class_between(trunk, "h0.g0", "h1.g0"), PathClass::kNvlink);
  const Machine ways = peer_ways(trunk);
  EXPECT_EQ(class_between(ways, "h0.g0", "h1.g0"), PathClass::kNetwork);
  EXPECT_EQ(class_between(ways, "h0.g0", "h0.g1"), PathClass::kNvlink);
  EXPECT_EQ(class_between(ways, "h1.g0", "h1.g1"), PathClass::kNvlink);
}

TEST(Paths, HaveTheirClasses) {
  const Machine cube = load_machine("dgx1v"), box = load_machine("pcie-8x"),
                pair = load_machine("ndv2x2");
  EXPECT_EQ(class_between(cube, "g0", "g0"), PathClass::kSelf);
  EXPECT_EQ(class_between(cube, "g0", "g3"), PathClass::kNvlink);
  EXPECT_EQ(class_between(cube, "g0", "g7"), PathClass::kNvlinkRelay);
  EXPECT_EQ(class_between(box, "g0", "g3"), PathClass::kPcieSwitch);
  EXPECT_EQ(class_between(load_machine("pcie-4x"), "g0", "g3"), PathClass::kHostBridge);
  EXPECT_EQ(class_between(box, "g0", "g4"), PathClass::kSockets);
  EXPECT_EQ(class_between(pair, "h0.g0", "h1.g0"), PathClass::kNetwork);
  EXPECT_EQ(class_between(load_machine("hgx-h200"), "g0", "g5"), PathClass::kNvlink);
  EXPECT_EQ(class_between(load_machine("gb200-nvl72"), "g0", "g71"), PathClass::kNvlink);
  // Under one switch without peer-to-peer access, data goes up to the CPU and down again.
  const Machine blind = load_machine("rtx4090-8x");
  EXPECT_EQ(class_between(blind, "g0", "g1"), PathClass::kHostBridge);
  EXPECT_EQ(best_path(blind, 0, 1).links.size(), 4u);
}

TEST(Paths, ListEveryClassThatExists) {
  const Machine machine = load_machine("hgx-h200");
  std::vector<PathClass> classes;
  for (const auto& path : paths(machine, 0, 4)) classes.push_back(path.path_class);
  EXPECT_EQ(classes, (std::vector{PathClass::kNvlink, PathClass::kSockets}));
  const auto all = paths(machine, 0, 4);
  EXPECT_NEAR(all[0].us, 0.7, 1e-9);
  EXPECT_DOUBLE_EQ(all[1].gbps, 22);
}

TEST(Affinity, PrefersTheNicUnderTheSameSwitchAndKnowsRelays) {
  const auto box = load_machine("pcie-8x");
  const auto choices = nic_affinity(box);
  EXPECT_EQ(box.nodes[choices[1].nic].id, "nic0");
  EXPECT_EQ(box.nodes[choices[6].nic].id, "nic1");
  EXPECT_EQ(choices[1].relay, -1);
  // A box with one NIC and NVLink bridges across its sockets. g0 reaches the NIC through g4.
  Machine bridged = load_machine("pcie-8x-1nic");
  for (int i = 0; i < 4; i++) connect(bridged, i, i + 4, LinkType::kNvlink, 48, 0.7, 4);
  const auto relayed = nic_affinity(bridged);
  EXPECT_EQ(relayed[0].direct.path_class, PathClass::kSockets);
  EXPECT_DOUBLE_EQ(relayed[0].direct.gbps, 10);
  EXPECT_EQ(relayed[0].relay, 4);
  EXPECT_DOUBLE_EQ(relayed[0].relayed.gbps, 12);
  EXPECT_EQ(relayed[4].relay, -1);
}

TEST(Affinity, SpreadsGpusOverEqualNics) {
  Machine machine;
  for (const char* id : {"g0", "g1", "g2", "g3"}) machine.nodes.push_back({id, NodeType::kGpu});
  machine.nodes.push_back({"cpu0", NodeType::kCpu});
  for (const char* id : {"a", "b"}) {
    machine.nodes.push_back({id, NodeType::kNic});
    machine.nodes.back().gbps = 12;
  }
  for (int i : {0, 1, 2, 3, 5, 6}) connect(machine, 4, i, LinkType::kPcie, 24, 0.5);
  std::string nics;
  for (const auto& choice : nic_affinity(machine)) nics += machine.nodes[choice.nic].id;
  EXPECT_EQ(nics, "abab");
}

TEST(Hierarchy, GoesFromClusterToGpu) {
  const Machine pair = load_machine("pcie-8xx2");
  const Subsystem all = hierarchy(pair);
  ASSERT_EQ(all.level, Level::kCluster);
  ASSERT_EQ(all.children.size(), 2u);
  const Subsystem& host = all.children[1];
  EXPECT_EQ(host.level, Level::kHost);
  EXPECT_EQ(host.host, 1);
  EXPECT_DOUBLE_EQ(host.uplink_gbps, 48);
  ASSERT_EQ(host.children.size(), 2u);
  EXPECT_EQ(host.children[0].level, Level::kSocket);
  ASSERT_EQ(host.children[0].children.size(), 1u);
  const Subsystem& shared = host.children[0].children[0];
  EXPECT_EQ(shared.level, Level::kSwitch);
  EXPECT_EQ(shared.gpus.size(), 4u);
  EXPECT_DOUBLE_EQ(shared.uplink_gbps, 24);
  EXPECT_EQ(shared.children[0].level, Level::kGpu);
  EXPECT_EQ(hierarchy(load_machine("dgx1v")).gpus.size(), 8u);
  EXPECT_TRUE(hierarchy(Machine{}).gpus.empty());
}

TEST(Pipeline, BeginsAndEndsUnderTheNicsOwnSwitch) {
  const Machine machine = load_machine("pcie-8x-1nic");
  const auto order = pipeline_order(machine);
  ASSERT_EQ(order.size(), 8u);
  const auto choices = nic_affinity(machine);
  EXPECT_EQ(choices[order.front()].direct.path_class, PathClass::kPcieSwitch);
  EXPECT_EQ(choices[order.back()].direct.path_class, PathClass::kPcieSwitch);
  int across = 0;
  for (size_t i = 0; i + 1 < order.size(); i++)
    across += best_path(machine, order[i], order[i + 1]).path_class == PathClass::kSockets ? 1 : 0;
  EXPECT_EQ(across, 2);
}

TEST(Network, JoinsHostsThatDiffer) {
  const Machine all =
      join({load_machine("dgx1v"), load_machine("pcie-4x"), load_machine("rtx4090-4x")});
  EXPECT_EQ(gpus(all).size(), 16u);
  EXPECT_EQ(count_hosts(all), 3);
  EXPECT_EQ(all.name, "dgx1v+pcie-4x+rtx4090-4x");
  EXPECT_EQ(class_between(all, "h0.g0", "h2.g3"), PathClass::kNetwork);
  EXPECT_DOUBLE_EQ(best_path(all, find_node(all, "h0.g0"), find_node(all, "h2.g3")).gbps, 1.2);
}

TEST(Network, SaysWhenAHostHasNoNic) {
  Machine alone;
  alone.name = "alone";
  alone.nodes.push_back({"g0", NodeType::kGpu});
  const Machine all = join({load_machine("dgx1v"), alone});
  EXPECT_EQ(all.notes.back(), "h1 (alone) has no NIC: nobody reaches it");
  EXPECT_EQ(class_between(all, "h0.g0", "h1.g0"), PathClass::kNone);
}

TEST(Network, HasRailsRacksAndOversubscription) {
  const auto cluster = [](const std::string& network) {
    return cluster_from_json(
        R"({"hosts": [{"machine": "dgx-a100", "count": 4}], "network": )" + network + "}", "test",
        [](const std::string& name) { return load_machine(name); });
  };
  // One network, eight rails with a spine, eight rails alone. Rails cost nothing here.
  EXPECT_NEAR(gather_bound(cluster("{}")), 266.67, 0.01);
  EXPECT_NEAR(gather_bound(cluster(R"({"rails": true})")), 266.67, 0.01);
  EXPECT_NEAR(gather_bound(cluster(R"({"rails": true, "spine": false})")), 266.67, 0.01);
  const Machine racks = cluster(R"({"racks": [[0, 1], [2, 3]], "oversubscription": 4})");
  // Half of the array enters a rack through 400 / 4 GB/s.
  EXPECT_NEAR(gather_bound(racks), 200, 0.01);
  const Subsystem all = hierarchy(racks);
  ASSERT_EQ(all.children.size(), 2u);
  EXPECT_EQ(all.children[0].level, Level::kRack);
  EXPECT_DOUBLE_EQ(all.children[0].uplink_gbps, 100);
  EXPECT_NE(error_of([&] { cluster(R"({"racks": [[0, 1], [2]]})"); }).find("host 3 is in no rack"),
            std::string::npos);
  EXPECT_NE(error_of([&] { cluster(R"({"racks": [[0, 9]]})"); }), "");
}

TEST(FlowGraph, LetsNothingTurnAroundInANic) {
  const Machine machine = load_machine("ndv2");
  const FlowGraph graph = flow_graph(machine);
  EXPECT_EQ(graph.machine.nodes.size(), machine.nodes.size() + 1);
  EXPECT_EQ(graph.machine.links.size(), machine.links.size());
  for (size_t i = 0; i < machine.links.size(); i++) {
    EXPECT_EQ(graph.origin[graph.machine.links[i].from], machine.links[i].from);
    EXPECT_EQ(graph.origin[graph.machine.links[i].to], machine.links[i].to);
  }
}

TEST(Fingerprint, DependsOnNeitherNamesNorOrder) {
  const Machine machine = load_machine("dgx1v");
  Machine other = machine;
  std::reverse(other.nodes.begin(), other.nodes.end());
  const int last = static_cast<int>(machine.nodes.size()) - 1;
  for (auto& link : other.links) {
    link.from = last - link.from;
    link.to = last - link.to;
  }
  for (auto& node : other.nodes) node.id += "'";
  EXPECT_EQ(fingerprint(machine), fingerprint(other));
  EXPECT_NE(fingerprint(machine), fingerprint(load_machine("ndv2")));
  // Every node has the same number of links, but two links are exchanged.
  std::swap(other.links[0].to, other.links[4].to);
  EXPECT_NE(fingerprint(machine), fingerprint(other));
}

TEST(View, DrawsEveryNode) {
  const Machine machine = load_machine("ndv2x2");
  for (const std::string& text : {machine_dot(machine), machine_svg(machine)})
    for (const auto& node : machine.nodes)
      EXPECT_NE(text.find(node.id), std::string::npos) << node.id;
}

}  // namespace
}  // namespace weft::test
