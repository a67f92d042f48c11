// See cpu_help.h.
#include "src/planner/cpu_help.h"

#include <algorithm>

namespace weft {
namespace {

// What the cores of one CPU read and reduce, GB/s: a handful of them saturates its memory.
constexpr double kReduceGbps = 60;

// GPUs first, then CPUs, which become ranks too; links follow.
Machine with_cpus_as_ranks(const Machine& machine) {
  Machine result;
  result.name = machine.name;
  std::vector<int> moved(machine.nodes.size(), -1);
  const auto take = [&](auto wanted) {
    for (size_t n = 0; n < machine.nodes.size(); n++)
      if (moved[n] < 0 && wanted(machine.nodes[n].type)) {
        moved[n] = static_cast<int>(result.nodes.size());
        result.nodes.push_back(machine.nodes[n]);
        if (machine.nodes[n].type == NodeType::kCpu) result.nodes.back().type = NodeType::kGpu;
      }
  };
  take([](NodeType type) { return type == NodeType::kGpu; });
  take([](NodeType type) { return type == NodeType::kCpu; });
  take([](NodeType) { return true; });
  for (Link link : machine.links) {
    link.from = moved[static_cast<size_t>(link.from)];
    link.to = moved[static_cast<size_t>(link.to)];
    result.links.push_back(link);
  }
  return result;
}

// Every CPU reduces a chunk of the array. To the simulator CPUs are ranks of the collective.
Schedule helped_schedule(const Collective& collective, int cpus) {
  const int n = collective.nranks;
  Schedule schedule;
  schedule.name = kCpuReduce;
  schedule.collective = {CollectiveKind::kAllReduce, n + cpus, 0};
  schedule.chunks = cpus;
  schedule.ranks.resize(static_cast<size_t>(n + cpus));
  const auto receives = [&](int rank) {
    return collective.kind == CollectiveKind::kAllReduce || rank == collective.root;
  };
  for (int r = 0; r < n; r++) {
    auto& lanes = schedule.ranks[static_cast<size_t>(r)].lanes;
    lanes.resize(static_cast<size_t>(2 * cpus));
    for (int c = 0; c < cpus; c++) {
      lanes[static_cast<size_t>(c)].steps.push_back(
          {{Operand::input(c)}, {Operand::peer(n + c)}, 1, {}});
      if (receives(r))
        lanes[static_cast<size_t>(cpus + c)].steps.push_back(
            {{Operand::peer(n + c)}, {Operand::output(c)}, 1, {}});
    }
  }
  for (int c = 0; c < cpus; c++) {
    Step step;
    for (int r = 0; r < n; r++) {
      step.from.push_back(Operand::peer(r));
      if (receives(r)) step.to.push_back(Operand::peer(r));
    }
    schedule.ranks[static_cast<size_t>(n + c)].lanes.push_back({{std::move(step)}});
  }
  return schedule;
}

}  // namespace

bool cpus_could_help(const Machine& machine, const Collective& collective) {
  if (collective.kind != CollectiveKind::kAllReduce && collective.kind != CollectiveKind::kReduce)
    return false;
  const bool wide = std::any_of(machine.links.begin(), machine.links.end(), [](const Link& link) {
    return link.type == LinkType::kNvlink || link.type == LinkType::kXgmi ||
           link.type == LinkType::kC2c;
  });
  return !wide && count_hosts(machine) == 1 && !nodes_of(machine, NodeType::kCpu).empty();
}

double simulate_cpu_help(const Machine& machine, const Collective& collective, double bytes,
                         const SimulationOptions& options) {
  const auto cpus = static_cast<int>(nodes_of(machine, NodeType::kCpu).size());
  const Simulation moved =
      simulate(with_cpus_as_ranks(machine), helped_schedule(collective, cpus), bytes, options);
  const double reduced_us = bytes * collective.nranks / cpus / kReduceGbps * 1e-3;
  return std::max(moved.time_us, reduced_us);
}

}  // namespace weft
