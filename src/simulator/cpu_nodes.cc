// See cpu_nodes.h.
#include "src/simulator/cpu_nodes.h"

#include <algorithm>
#include <map>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr double kMemoryUs = 0.1;
// The fact that marks a graph node as the memory of a CPU node.
constexpr const char* kCpuMemory = "cpu_memory";

// Per node, the number of links from `from`; paths do not pass through GPUs.
std::vector<int> distances(const Machine& machine, int from) {
  std::vector<int> steps(machine.nodes.size(), -1);
  std::vector<int> queue = {from};
  steps[static_cast<size_t>(from)] = 0;
  for (size_t i = 0; i < queue.size(); i++)
    for (const Link& link : machine.links)
      if (link.from == queue[i] && steps[static_cast<size_t>(link.to)] < 0 &&
          machine.nodes[static_cast<size_t>(link.to)].type != NodeType::kGpu) {
        steps[static_cast<size_t>(link.to)] = steps[static_cast<size_t>(queue[i])] + 1;
        queue.push_back(link.to);
      }
  return steps;
}

int nearest_cpu(const Machine& machine, int gpu) {
  const std::vector<int> steps = distances(machine, gpu);
  int nearest = -1;
  for (const int cpu : nodes_of(machine, NodeType::kCpu)) {
    const int here = steps[static_cast<size_t>(cpu)];
    if (here >= 0 && (nearest < 0 || here < steps[static_cast<size_t>(nearest)])) nearest = cpu;
  }
  if (nearest < 0)
    fail(ncclInvalidUsage, "{} reaches no CPU", machine.nodes[static_cast<size_t>(gpu)].id);
  return nearest;
}

// Ranks that send to a CPU node.
std::vector<int> senders(const Schedule& schedule, int node) {
  std::vector<int> ranks;
  for (int r = 0; r < schedule.collective.nranks; r++) {
    bool sends = false;
    for (const Lane& lane : schedule.ranks[static_cast<size_t>(r)].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to)
          sends = sends || (to.kind == Operand::Kind::kPeer &&
                            to.index == schedule.collective.nranks + node);
    if (sends) ranks.push_back(r);
  }
  return ranks;
}

// GB/s into and out of the memory of a CPU node. Each direction takes as long as the node's cores
// work. The cores read and reduce the input. They write the result once for every message but one.
struct NodeRates {
  double in_gbps = 0, out_gbps = 0;
};
NodeRates rates_of_node(const Schedule& schedule, int node, const CpuRates& rates) {
  double in = 0, out = 0, us = 0;  // per megabyte of every chunk
  int lanes = 0;
  const auto peer = [](const Operand& o) { return o.kind == Operand::Kind::kPeer; };
  for (const Lane& lane :
       schedule.ranks[static_cast<size_t>(schedule.collective.nranks + node)].lanes) {
    lanes += lane.steps.empty() ? 0 : 1;
    for (const Step& step : lane.steps) {
      const auto from = static_cast<double>(step.from.size()),
                 to = static_cast<double>(step.to.size());
      const bool reduces = from > 1;
      in +=
          step.count * static_cast<double>(std::count_if(step.from.begin(), step.from.end(), peer));
      out += step.count * static_cast<double>(std::count_if(step.to.begin(), step.to.end(), peer));
      us += step.count * ((reduces ? from * rates.reduce_us_mb : 0) +
                          std::max(0.0, to - (reduces ? 1 : 0)) * rates.copy_us_mb);
    }
  }
  const double cores =
      std::clamp(rates.cores / std::max(1, schedule.cpu_nodes), 1, std::max(1, lanes));
  us = std::max(us, 1e-3);
  return {1e3 * in / us * cores, 1e3 * out / us * cores};
}

}  // namespace

bool cpus_could_help(const Machine& machine, int cpu_nodes) {
  const bool wide = std::any_of(machine.links.begin(), machine.links.end(), [](const Link& link) {
    return link.type == LinkType::kNvlink || link.type == LinkType::kXgmi ||
           link.type == LinkType::kC2c;
  });
  return !wide && count_hosts(machine) == 1 &&
         static_cast<int>(nodes_of(machine, NodeType::kCpu).size()) >= cpu_nodes;
}

Machine with_cpu_nodes(const Machine& machine, const Schedule& schedule, const CpuRates& rates) {
  Machine helped = machine;
  if (schedule.cpu_nodes == 0) return helped;
  const std::vector<int> ranks = gpus(machine);
  const auto nranks = static_cast<size_t>(schedule.collective.nranks);
  if (ranks.size() < nranks)
    fail(ncclInvalidUsage, "schedule '{}' is for {} ranks, but {} has {} GPUs", schedule.name,
         nranks, machine.name.empty() ? "the machine" : machine.name, ranks.size());
  // The ranks after the schedule's must be CPU nodes.
  for (size_t r = nranks; r < ranks.size(); r++) {
    helped.nodes[static_cast<size_t>(ranks[r])].type = NodeType::kSwitch;
    std::erase_if(helped.links,
                  [&](const Link& link) { return link.from == ranks[r] || link.to == ranks[r]; });
  }
  for (int node = 0; node < schedule.cpu_nodes; node++) {
    std::map<int, int> votes;
    for (const int r : senders(schedule, node))
      votes[nearest_cpu(machine, ranks[static_cast<size_t>(r)])]++;
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == votes.end())
      fail(ncclInvalidUsage, "schedule '{}': no rank sends to CPU node {}", schedule.name, node);
    Node memory;
    memory.id = fmt::format("memory{}", node);
    memory.host = machine.nodes[static_cast<size_t>(most->first)].host;
    memory.facts.emplace(kCpuMemory, "1");
    helped.nodes.push_back(memory);
    const int at = static_cast<int>(helped.nodes.size()) - 1;
    const NodeRates node_rates = rates_of_node(schedule, node, rates);
    helped.links.push_back(
        {most->first, at, LinkType::kOther, node_rates.in_gbps, rates.notice_us, 1});
    helped.links.push_back({at, most->first, LinkType::kOther, node_rates.out_gbps, kMemoryUs, 1});
  }
  return helped;
}

void check_cpu_nodes(const Machine& machine, const Schedule& schedule) {
  const std::vector<int> ranks = gpus(machine);
  const auto nranks = static_cast<size_t>(schedule.collective.nranks);
  bool there = ranks.size() >= nranks + static_cast<size_t>(schedule.cpu_nodes);
  for (size_t r = nranks; there && r < schedule.ranks.size(); r++)
    there = fact(machine.nodes[static_cast<size_t>(ranks[r])], kCpuMemory) == "1";
  if (!there)
    fail(ncclInvalidUsage, "schedule '{}' has CPU nodes, but {} shows no memory of theirs",
         schedule.name, machine.name.empty() ? "the machine" : machine.name);
}

}  // namespace weft
