// See hierarchy.h.
#include "src/topology/graph/hierarchy.h"

#include <algorithm>
#include <map>
#include <set>

namespace weft {
namespace {

class Tree {
 public:
  explicit Tree(const Machine& machine) : machine_(machine), up_(machine.nodes.size(), -1) {
    // Towards the CPUs along PCIe, breadth first.
    std::vector<int> front = nodes_of(machine, NodeType::kCpu);
    std::vector<bool> seen(machine.nodes.size(), false);
    for (const int cpu : front) seen[cpu] = true;
    for (size_t i = 0; i < front.size(); i++) {
      for (const auto& link : machine.links) {
        if (link.from != front[i] || link.type != LinkType::kPcie || seen[link.to]) continue;
        seen[link.to] = true;
        up_[link.to] = front[i];
        front.push_back(link.to);
      }
    }
  }

  Subsystem run() const {
    std::map<int, std::vector<Subsystem>> racks;  // by leaf switch, -1: no network
    std::set<int> hosts;
    for (const int gpu : gpus(machine_)) hosts.insert(machine_.nodes[gpu].host);
    for (const int host : hosts) racks[leaf_of(host)].push_back(host_system(host));
    Subsystem all;
    all.level = Level::kCluster;
    for (auto& [leaf, members] : racks) {
      if (racks.size() == 1) {
        all.children = std::move(members);
        break;
      }
      Subsystem rack;
      rack.level = Level::kRack;
      rack.node = leaf;
      for (auto& member : members) take(rack, std::move(member));
      if (leaf >= 0)
        for (const auto& link : machine_.links)
          if (link.from == leaf && machine_.nodes[link.to].type == NodeType::kSwitch)
            rack.uplink_gbps += link.gbps;
      all.children.push_back(std::move(rack));
    }
    if (all.children.size() == 1) {
      Subsystem only = std::move(all.children[0]);
      return only;
    }
    for (const auto& child : all.children)
      all.gpus.insert(all.gpus.end(), child.gpus.begin(), child.gpus.end());
    return all;
  }

 private:
  static void take(Subsystem& parent, Subsystem child) {
    parent.gpus.insert(parent.gpus.end(), child.gpus.begin(), child.gpus.end());
    parent.children.push_back(std::move(child));
  }

  // The leaf switch of the host's first NIC. (With rails a host has several leaves.) Hosts that
  // share it form a rack, unless all hosts share it.
  int leaf_of(int host) const {
    for (const auto& link : machine_.links)
      if (link.type == LinkType::kNetwork && machine_.nodes[link.from].type == NodeType::kNic &&
          machine_.nodes[link.from].host == host)
        return link.to;
    return -1;
  }

  double uplink(int from, int to) const {
    double gbps = 0;
    for (const auto& link : machine_.links)
      if (link.from == from && link.to == to) gbps += link.gbps;
    return gbps;
  }

  Subsystem system_at(int node, int host) const {
    Subsystem system;
    system.node = node;
    system.host = host;
    const NodeType type = machine_.nodes[node].type;
    system.level = type == NodeType::kGpu   ? Level::kGpu
                   : type == NodeType::kCpu ? Level::kSocket
                                            : Level::kSwitch;
    if (type == NodeType::kGpu)
      system.gpus = {node};
    else
      for (size_t i = 0; i < up_.size(); i++) {
        if (up_[i] != node) continue;
        Subsystem child = system_at(static_cast<int>(i), host);
        if (!child.gpus.empty()) take(system, std::move(child));
      }
    if (up_[node] >= 0) system.uplink_gbps = uplink(node, up_[node]);
    return system;
  }

  Subsystem host_system(int host) const {
    Subsystem system;
    system.level = Level::kHost;
    system.host = host;
    for (size_t i = 0; i < machine_.nodes.size(); i++) {
      const Node& node = machine_.nodes[i];
      if (node.host != host) continue;
      if (node.type == NodeType::kNic) system.uplink_gbps += node.gbps;
      const bool root = node.type == NodeType::kCpu || (node.type == NodeType::kGpu && up_[i] < 0);
      if (!root) continue;
      Subsystem child = system_at(static_cast<int>(i), host);
      if (!child.gpus.empty()) take(system, std::move(child));
    }
    if (system.children.size() == 1 && system.children[0].level == Level::kSocket) {
      auto inner = std::move(system.children[0].children);
      system.children = std::move(inner);
    }
    std::sort(system.gpus.begin(), system.gpus.end());
    return system;
  }

  const Machine& machine_;
  std::vector<int> up_;
};

}  // namespace

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kGpu:
      return "GPU";
    case Level::kSwitch:
      return "switch";
    case Level::kSocket:
      return "socket";
    case Level::kHost:
      return "host";
    case Level::kRack:
      return "rack";
    case Level::kCluster:
      return "cluster";
  }
  return "";
}

Subsystem hierarchy(const Machine& machine) { return Tree(machine).run(); }

}  // namespace weft
