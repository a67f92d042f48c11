// See flow_graph.h.
#include "src/topology/graph/flow_graph.h"

namespace weft {
namespace {

// Switches with a PCIe link to a GPU without peer-to-peer access, and all switches above them.
std::vector<bool> split_switches(const Machine& machine) {
  std::vector<bool> split(machine.nodes.size(), false);
  const auto is_switch = [&](int node) { return machine.nodes[node].type == NodeType::kSwitch; };
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& link : machine.links) {
      if (link.type != LinkType::kPcie || !is_switch(link.to) || split[link.to]) continue;
      const Node& below = machine.nodes[link.from];
      const bool blind = below.type == NodeType::kGpu && fact(below, "p2p") == "0";
      if (blind || (is_switch(link.from) && split[link.from])) changed = split[link.to] = true;
    }
  }
  return split;
}

// Hops to the nearest CPU along PCIe: tells up from down.
std::vector<int> depths(const Machine& machine) {
  std::vector<int> depth(machine.nodes.size(), 1 << 20);
  for (const int cpu : nodes_of(machine, NodeType::kCpu)) depth[cpu] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& link : machine.links) {
      if (link.type != LinkType::kPcie || depth[link.from] + 1 >= depth[link.to]) continue;
      depth[link.to] = depth[link.from] + 1;
      changed = true;
    }
  }
  return depth;
}

}  // namespace

FlowGraph flow_graph(const Machine& machine) {
  FlowGraph graph;
  graph.machine.name = machine.name;
  graph.machine.notes = machine.notes;
  const std::vector<bool> split = split_switches(machine);
  const std::vector<int> depth = depths(machine);
  const bool networked = count_hosts(machine) > 1;
  const auto one_way = [&](const Node& node) {
    return node.type == NodeType::kNic && !(networked && fact(node, "loopback") == "1");
  };
  const size_t count = machine.nodes.size();
  std::vector<int> leaving(count), arriving(count);
  const auto add = [&](size_t from, const char* suffix) {
    Node node = machine.nodes[from];
    node.id += suffix;
    graph.machine.nodes.push_back(std::move(node));
    graph.origin.push_back(static_cast<int>(from));
    return static_cast<int>(graph.origin.size()) - 1;
  };
  for (const bool gpu : {true, false}) {
    for (size_t i = 0; i < count; i++) {
      if ((machine.nodes[i].type == NodeType::kGpu) != gpu) continue;
      if (one_way(machine.nodes[i]) || split[i]) {
        leaving[i] = add(i, ".out");  // towards the network, or up to the CPU
        arriving[i] = add(i, ".in");
      } else {
        leaving[i] = arriving[i] = add(i, "");
      }
    }
  }
  // The part of a split node that a link ends at.
  const auto part = [&](const Link& link, bool from) {
    const int node = from ? link.from : link.to;
    if (machine.nodes[node].type == NodeType::kNic) {
      const Node& other = machine.nodes[from ? link.to : link.from];
      const bool network = link.type == LinkType::kNetwork || other.host < 0;
      return network == from ? leaving[node] : arriving[node];
    }
    return depth[link.to] < depth[link.from] ? leaving[node] : arriving[node];
  };
  for (Link link : machine.links) {
    const int from = part(link, true);
    link.to = part(link, false);
    link.from = from;
    graph.machine.links.push_back(link);
  }
  return graph;
}

}  // namespace weft
