// See cpu_help.h.
#include "src/planner/cpu_help.h"

#include <algorithm>

#include "src/base/error.h"

namespace weft {
namespace {

// What the cores of one CPU read and reduce, and what its memory takes and gives, GB/s.
constexpr double kReduceGbps = 60, kMemoryGbps = 100;

// Every CPU gets a node for its memory, which is a rank, behind the GPUs.
struct HelpedMachine {
  Machine machine;
  std::vector<int> cpu_of;  // per GPU, the number of the CPU it is nearest to
  int cpus = 0;
};

// Nodes by the number of links to them, GPUs not passed through.
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

HelpedMachine with_memory(const Machine& machine) {
  HelpedMachine helped{machine, {}, 0};
  const std::vector<int> cpus = nodes_of(machine, NodeType::kCpu);
  helped.cpus = static_cast<int>(cpus.size());
  for (const int gpu : gpus(machine)) {
    const std::vector<int> steps = distances(machine, gpu);
    int nearest = -1;
    for (int c = 0; c < helped.cpus; c++) {
      const int here = steps[static_cast<size_t>(cpus[static_cast<size_t>(c)])];
      if (here >= 0 &&
          (nearest < 0 || here < steps[static_cast<size_t>(cpus[static_cast<size_t>(nearest)])]))
        nearest = c;
    }
    if (nearest < 0)
      fail(ncclInvalidUsage, "{} reaches no CPU", machine.nodes[static_cast<size_t>(gpu)].id);
    helped.cpu_of.push_back(nearest);
  }
  for (const int cpu : cpus) {
    Node memory;
    memory.id = machine.nodes[static_cast<size_t>(cpu)].id + ".memory";
    memory.host = machine.nodes[static_cast<size_t>(cpu)].host;
    helped.machine.nodes.push_back(memory);
    connect(helped.machine, cpu, static_cast<int>(helped.machine.nodes.size()) - 1,
            LinkType::kOther, kMemoryGbps, 0.1);
  }
  return helped;
}

// GPUs write to their CPU, CPUs exchange what they have summed, GPUs read the result. To the
// simulator memories are ranks of the collective.
Schedule helped_schedule(const Collective& collective, const HelpedMachine& helped) {
  const int n = collective.nranks;
  Schedule schedule;
  schedule.name = kCpuReduce;
  schedule.collective = {CollectiveKind::kAllReduce, n + helped.cpus, 0};
  schedule.ranks.resize(static_cast<size_t>(n + helped.cpus));
  const auto gets_it = [&](int rank) {
    return collective.kind == CollectiveKind::kAllReduce || rank == collective.root;
  };
  for (int r = 0; r < n; r++) {
    const int cpu = n + helped.cpu_of[static_cast<size_t>(r)];
    auto& lanes = schedule.ranks[static_cast<size_t>(r)].lanes;
    lanes.resize(2);
    lanes[0].steps.push_back({{Operand::input(0)}, {Operand::peer(cpu)}, 1, {}});
    if (gets_it(r)) lanes[1].steps.push_back({{Operand::peer(cpu)}, {Operand::output(0)}, 1, {}});
  }
  for (int c = 0; c < helped.cpus; c++) {
    RankSchedule& rank = schedule.ranks[static_cast<size_t>(n + c)];
    rank.lanes.resize(2);
    Step sum{{}, {Operand::output(0)}, 1, {}}, finish{{Operand::output(0)}, {}, 1, {{0, 0}}};
    for (int r = 0; r < n; r++) {
      if (helped.cpu_of[static_cast<size_t>(r)] != c) continue;
      sum.from.push_back(Operand::peer(r));
      if (gets_it(r)) finish.to.push_back(Operand::peer(r));
    }
    for (int other = 0; other < helped.cpus; other++)
      if (other != c) {
        sum.to.push_back(Operand::peer(n + other));
        finish.from.push_back(Operand::peer(n + other));
      }
    if (sum.from.empty()) sum.from.push_back(Operand::input(0));  // no GPU below this one
    if (finish.to.empty()) finish.to.push_back(Operand::output(0));
    rank.lanes[0].steps.push_back(std::move(sum));
    rank.lanes[1].steps.push_back(std::move(finish));
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
  const HelpedMachine helped = with_memory(machine);
  const Simulation moved =
      simulate(helped.machine, helped_schedule(collective, helped), bytes, options);
  std::vector<double> below(static_cast<size_t>(helped.cpus), 0);
  for (int r = 0; r < collective.nranks; r++)
    below[static_cast<size_t>(helped.cpu_of[static_cast<size_t>(r)])]++;
  const double most = *std::max_element(below.begin(), below.end());
  return std::max(moved.time_us, bytes * most / kReduceGbps * 1e-3);
}

}  // namespace weft
