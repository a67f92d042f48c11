// See broken.h.
#include "perf/synth/broken.h"

#include <algorithm>

#include "algorithms/bounds/bounds.h"

namespace weft {
namespace {

bool is_gpu(const Machine& machine, int node) {
  return machine.nodes[static_cast<size_t>(node)].type == NodeType::kGpu;
}

bool touches(const Link& link, int node) { return link.from == node || link.to == node; }

Machine without_link(Machine machine, int a, int b) {
  std::erase_if(machine.links, [&](const Link& l) { return touches(l, a) && touches(l, b); });
  return machine;
}

Machine with_half_nic(Machine machine, int nic) {
  for (Link& l : machine.links)
    if (touches(l, nic)) l.gbps /= 2;
  return machine;
}

Machine without_nvlink(Machine machine, int gpu) {
  std::erase_if(machine.links,
                [&](const Link& l) { return l.type == LinkType::kNvlink && touches(l, gpu); });
  return machine;
}

Machine without_node(Machine machine, int node) {
  std::erase_if(machine.links, [&](const Link& l) { return touches(l, node); });
  machine.nodes.erase(machine.nodes.begin() + node);
  for (Link& l : machine.links) {
    l.from -= l.from > node ? 1 : 0;
    l.to -= l.to > node ? 1 : 0;
  }
  return machine;
}

// Whether the GPUs of a host reach each other without the network. A GPU that does not is no longer
// part of that host.
bool connected_inside(Machine machine, int host) {
  const auto elsewhere = [&](int node) {
    const Node& n = machine.nodes[static_cast<size_t>(node)];
    return n.host != host || n.type == NodeType::kNic;
  };
  std::erase_if(machine.links, [&](const Link& l) { return elsewhere(l.from) || elsewhere(l.to); });
  for (int v = static_cast<int>(machine.nodes.size()) - 1; v >= 0; v--)
    if (elsewhere(v)) machine = without_node(std::move(machine), v);
  const auto ranks = static_cast<int>(gpus(machine).size());
  return throughput_bound(machine, {CollectiveKind::kAllGather, ranks, 0}).algbw_gbps > 0;
}

}  // namespace

std::vector<BrokenMachine> broken_machines(const Machine& machine) {
  std::vector<BrokenMachine> broken;
  const std::vector<int> ranks = gpus(machine);
  const auto joined = std::find_if(machine.links.begin(), machine.links.end(), [&](const Link& l) {
    return is_gpu(machine, l.from) && is_gpu(machine, l.to);
  });
  if (joined != machine.links.end())
    broken.push_back({"-link", without_link(machine, joined->from, joined->to)});
  // A NIC through which GPUs reach other hosts.
  const auto host = [&](int node) { return machine.nodes[static_cast<size_t>(node)].host; };
  if (host(ranks.front()) != host(ranks.back()))
    for (size_t v = 0; v < machine.nodes.size(); v++)
      if (machine.nodes[v].type == NodeType::kNic) {
        broken.push_back({"-nic/2", with_half_nic(machine, static_cast<int>(v))});
        break;
      }
  Machine alone = without_nvlink(machine, ranks[1]);
  if (alone.links.size() < machine.links.size() && connected_inside(alone, host(ranks[1])))
    broken.push_back({"-nvlink", std::move(alone)});
  broken.push_back({"-gpu", without_node(machine, ranks[ranks.size() - 2])});
  return broken;
}

}  // namespace weft
