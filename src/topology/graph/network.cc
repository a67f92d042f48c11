// See network.h.
#include "src/topology/graph/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/error.h"

namespace weft {
namespace {

struct Port {
  int node;
  int host;  // position in the list of hosts
  int rail;  // number of the NIC within its host
};

// Appends a host's graph; returns its NICs.
std::vector<Port> append(Machine& all, const Machine& host, int position, int& next_host) {
  std::vector<Port> ports;
  std::map<int, int> renumbered;
  for (const auto& node : host.nodes)
    if (node.host >= 0) renumbered.emplace(node.host, 0);
  for (auto& [_, number] : renumbered) number = next_host++;
  std::vector<int> index;
  int rail = 0;
  for (const auto& node : host.nodes) {
    index.push_back(static_cast<int>(all.nodes.size()));
    if (node.type == NodeType::kSwitch && !fact(node, "fabric").empty()) {
      const auto same = std::find_if(all.nodes.begin(), all.nodes.end(), [&](const Node& other) {
        return other.type == NodeType::kSwitch && fact(other, "fabric") == fact(node, "fabric");
      });
      if (same != all.nodes.end()) {
        same->host = -1;
        index.back() = static_cast<int>(same - all.nodes.begin());
        continue;
      }
    }
    Node copy = node;
    copy.id = fmt::format("h{}.{}", position, node.id);
    if (node.host >= 0) copy.host = renumbered.at(node.host);
    if (node.type == NodeType::kNic && node.gbps > 0)
      ports.push_back({static_cast<int>(all.nodes.size()), position, rail++});
    all.nodes.push_back(std::move(copy));
  }
  for (Link link : host.links) {
    link.from = index[link.from];
    link.to = index[link.to];
    all.links.push_back(link);
  }
  for (const auto& note : host.notes) {
    // Equal hosts have equal notes: keep each once.
    const bool known = std::any_of(
        all.notes.begin(), all.notes.end(),
        [&](const std::string& other) { return other.substr(other.find(' ') + 1) == note; });
    if (!known) all.notes.push_back(fmt::format("h{}: {}", position, note));
  }
  return ports;
}

int add_switch(Machine& all, const std::string& id, const char* model) {
  Node node;
  node.id = id;
  node.type = NodeType::kSwitch;
  node.host = -1;
  node.model = model;
  all.nodes.push_back(node);
  return static_cast<int>(all.nodes.size()) - 1;
}

std::vector<int> rack_of_hosts(const Fabric& network, size_t hosts) {
  std::vector<int> rack(hosts, network.racks.empty() ? 0 : -1);
  for (size_t r = 0; r < network.racks.size(); r++) {
    for (const int host : network.racks[r]) {
      if (host < 0 || static_cast<size_t>(host) >= hosts)
        fail(ncclInvalidArgument, "rack {} names host {}, but there are {} hosts", r, host, hosts);
      if (rack[host] >= 0)
        fail(ncclInvalidArgument, "host {} is in rack {} and in rack {}", host, rack[host], r);
      rack[host] = static_cast<int>(r);
    }
  }
  const auto lost = std::find(rack.begin(), rack.end(), -1);
  if (lost != rack.end()) fail(ncclInvalidArgument, "host {} is in no rack", lost - rack.begin());
  return rack;
}

void wire(Machine& all, const std::vector<Port>& ports, const Fabric& network, size_t hosts) {
  const std::vector<int> rack = rack_of_hosts(network, hosts);
  struct Leaf {
    int node = -1;
    double gbps = 0;  // bandwidth of the NICs below, together
  };
  std::map<std::pair<int, int>, Leaf> leaves;  // by rack and rail
  const bool one_switch = !network.rails && network.racks.size() <= 1;
  for (const auto& port : ports) {
    const int rail = network.rails ? port.rail : 0;
    Leaf& leaf = leaves[{rack[port.host], rail}];
    if (leaf.node < 0) {
      std::string id = "net";
      if (!network.racks.empty()) id += fmt::format(".rack{}", rack[port.host]);
      if (network.rails) id += fmt::format(".rail{}", rail);
      leaf.node = add_switch(all, id, network.rails ? "rail switch" : "network switch");
    }
    const Node& nic = all.nodes[port.node];
    leaf.gbps += nic.gbps;
    connect(all, port.node, leaf.node, LinkType::kNetwork, nic.gbps, nic.us);
  }
  if (one_switch || leaves.size() <= 1) return;
  // Without a spine, only the leaves of one rail in different racks connect.
  std::map<int, int> spines;
  for (const auto& [place, leaf] : leaves) {
    const int key = network.spine ? 0 : place.second;
    if (!network.spine && network.racks.size() <= 1) break;
    if (!spines.count(key))
      spines[key] = add_switch(all, network.spine ? "net.spine" : fmt::format("net.spine{}", key),
                               "spine switch");
    connect(all, leaf.node, spines[key], LinkType::kNetwork, leaf.gbps / network.oversubscription,
            network.switch_us);
  }
}

}  // namespace

Machine join(const std::vector<Machine>& hosts, const Fabric& network) {
  if (hosts.empty()) fail(ncclInvalidArgument, "a cluster needs at least one host");
  if (!(network.oversubscription > 0))
    fail(ncclInvalidArgument, "oversubscription must be above 0");
  if (hosts.size() == 1) return hosts[0];
  Machine all;
  std::vector<Port> ports;
  int next_host = 0;
  for (size_t i = 0; i < hosts.size(); i++) {
    const auto more = append(all, hosts[i], static_cast<int>(i), next_host);
    if (more.empty())
      all.notes.push_back(fmt::format("h{} ({}) has no NIC: nobody reaches it", i, hosts[i].name));
    ports.insert(ports.end(), more.begin(), more.end());
    all.name += (i == 0 ? "" : "+") + hosts[i].name;
  }
  const bool same = std::all_of(hosts.begin(), hosts.end(),
                                [&](const Machine& m) { return m.name == hosts[0].name; });
  if (same) all.name = fmt::format("{}x{}", hosts[0].name, hosts.size());
  wire(all, ports, network, hosts.size());
  return all;
}

void join_nics(Machine& machine) {
  const bool joined = std::any_of(machine.links.begin(), machine.links.end(),
                                  [](const Link& link) { return link.type == LinkType::kNetwork; });
  std::vector<Port> ports;
  for (const int nic : nodes_of(machine, NodeType::kNic))
    if (machine.nodes[nic].gbps > 0) ports.push_back({nic, 0, 0});
  if (!joined && !ports.empty()) wire(machine, ports, {}, 1);
}

Machine replicate(const Machine& host, int count, const Fabric& network) {
  return join(std::vector<Machine>(static_cast<size_t>(count), host), network);
}

}  // namespace weft
