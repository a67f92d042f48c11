// See machine.h.
#include "src/topology/graph/machine.h"

#include <set>

namespace weft {

std::vector<int> nodes_of(const Machine& machine, NodeType type) {
  std::vector<int> indices;
  for (size_t i = 0; i < machine.nodes.size(); i++)
    if (machine.nodes[i].type == type) indices.push_back(static_cast<int>(i));
  return indices;
}

std::vector<int> gpus(const Machine& machine) { return nodes_of(machine, NodeType::kGpu); }

int count_hosts(const Machine& machine) {
  std::set<int> hosts;
  for (const auto& node : machine.nodes)
    if (node.host >= 0) hosts.insert(node.host);
  return static_cast<int>(hosts.size());
}

int find_node(const Machine& machine, std::string_view id) {
  for (size_t i = 0; i < machine.nodes.size(); i++)
    if (machine.nodes[i].id == id) return static_cast<int>(i);
  return -1;
}

std::string_view fact(const Node& node, const std::string& name) {
  const auto it = node.facts.find(name);
  return it == node.facts.end() ? std::string_view() : std::string_view(it->second);
}

void connect(Machine& machine, int a, int b, LinkType type, double gbps, double us, int count) {
  machine.links.push_back({a, b, type, gbps, us, count});
  machine.links.push_back({b, a, type, gbps, us, count});
}

std::string_view name_of(NodeType type) {
  switch (type) {
    case NodeType::kGpu:
      return "gpu";
    case NodeType::kCpu:
      return "cpu";
    case NodeType::kSwitch:
      return "switch";
    case NodeType::kNic:
      return "nic";
  }
  return "";
}

std::string_view name_of(LinkType type) {
  switch (type) {
    case LinkType::kNvlink:
      return "nvlink";
    case LinkType::kPcie:
      return "pcie";
    case LinkType::kXgmi:
      return "xgmi";
    case LinkType::kSocket:
      return "socket";
    case LinkType::kNetwork:
      return "network";
    case LinkType::kC2c:
      return "c2c";
    case LinkType::kOther:
      return "other";
  }
  return "";
}

}  // namespace weft
