// See via_host.h.
#include "src/planner/via_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/topology/graph/paths.h"

namespace weft {
namespace {

// A GPU's own memory is no bottleneck.
constexpr double kOwnMemoryGbps = 1000;
// A call wakes the thread of its CPU node, on a core that may be asleep.
constexpr double kWakeUs = 40;

bool between_gpus(const Link& link) {
  return link.type == LinkType::kNvlink || link.type == LinkType::kXgmi;
}

}  // namespace

std::string no_peer_access(const Machine& machine, std::span<const int> gpus) {
  for (const int gpu : gpus) {
    const bool others = std::any_of(gpus.begin(), gpus.end(), [&](int o) { return o != gpu; });
    const Node& node = machine.nodes[static_cast<size_t>(gpu)];
    if (others && fact(node, "p2p") == "0")
      return fmt::format("{} has no peer-to-peer access to other GPUs", node.id);
  }
  return "";
}

bool has_direct_path(const Machine& machine, int rank, int peer) {
  const std::vector<int> nodes = gpus(machine);
  const PathClass way =
      PathFinder(machine)
          .best(nodes[static_cast<size_t>(rank)], nodes[static_cast<size_t>(peer)])
          .path_class;
  return way == PathClass::kNvlink || way == PathClass::kPcieSwitch;
}

bool only_over_host_bridge(const Machine& machine, std::span<const int> gpus) {
  const PathFinder finder(machine);
  const std::set<int> distinct(gpus.begin(), gpus.end());
  for (const int a : distinct)
    for (const int b : distinct) {
      const PathClass way = a == b ? PathClass::kSockets : finder.best(a, b).path_class;
      if (way != PathClass::kHostBridge && way != PathClass::kSockets) return false;
    }
  return distinct.size() > 1;
}

Machine machine_of_ranks(const Machine& machine, std::span<const int> gpus, bool via_host) {
  Machine ranks = machine;
  if (via_host) std::erase_if(ranks.links, between_gpus);
  // The new rank nodes are the GPUs. The real GPUs become switches that only forward.
  for (Node& node : ranks.nodes)
    if (node.type == NodeType::kGpu) node.type = NodeType::kSwitch;
  for (size_t r = 0; r < gpus.size(); r++) {
    Node rank;
    rank.id = fmt::format("rank{}", r);
    rank.host = machine.nodes[static_cast<size_t>(gpus[r])].host;
    if (via_host) rank.facts.emplace("p2p", "0");
    ranks.nodes.push_back(rank);
    connect(ranks, static_cast<int>(ranks.nodes.size()) - 1, gpus[r], LinkType::kPcie,
            kOwnMemoryGbps, 0);
  }
  return ranks;
}

SimulationOptions via_host_simulation(const Rates& fifos, const Rates& cpus, double slice_bytes,
                                      int nranks) {
  SimulationOptions options;
  options.slice_bytes = slice_bytes;
  options.most_slices = nranks > 8 ? 8 : 32;  // fast enough for init
  // With many ranks a slice has many messages. Without a limit, planning for 30 ranks takes 1.5
  // times as long, and hardly any choice changes.
  if (nranks > 16) options.most_messages = 4096;
  options.estimate = true;
  options.step_us = fifos.step_us;
  options.message_us = fifos.message_us;
  options.node_message_us = cpus.message_us;
  options.receive_us_mb = fifos.copy_us_mb;
  return options;
}

CpuRates cpu_rates(const Rates& cpus, int cores) {
  return {cpus.reduce_mid_us_mb, cpus.copy_mid_us_mb, cores, kWakeUs};
}

}  // namespace weft
