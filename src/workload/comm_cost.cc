// See comm_cost.h.
#include "src/workload/comm_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/planner/plan_facts.h"
#include "src/planner/selection.h"
#include "src/simulator/lane_cut.h"
#include "src/simulator/simulator.h"

namespace weft::workload {

struct CommCosts::Part {
  std::shared_ptr<const Machine> machine;
  std::vector<int> links;  // of the whole machine, per link of the part
};

namespace {

constexpr int kFewRanks = 16;   // with more, only plans that scale are compared
constexpr int kManyRanks = 64;  // with more, slices are few
constexpr double kMostMessages = 4e5;

// The GPUs of the ranks, and what is left of their hosts and of the network.
Machine part_machine(const Machine& machine, const std::vector<int>& ranks_gpus,
                     std::vector<int>& links) {
  Machine part;
  part.name = machine.name;
  std::map<int, int> hosts;
  std::vector<int> index(machine.nodes.size(), -1);
  const auto take = [&](size_t node) {
    index[node] = static_cast<int>(part.nodes.size());
    part.nodes.push_back(machine.nodes[node]);
    int& host = part.nodes.back().host;
    if (host >= 0) host = hosts.emplace(host, static_cast<int>(hosts.size())).first->second;
  };
  for (const int gpu : ranks_gpus) take(static_cast<size_t>(gpu));
  const std::map<int, int> known = hosts;
  for (size_t i = 0; i < machine.nodes.size(); i++) {
    const Node& node = machine.nodes[i];
    if (node.type != NodeType::kGpu && (node.host < 0 || known.count(node.host) > 0)) take(i);
  }
  for (size_t i = 0; i < machine.links.size(); i++) {
    Link link = machine.links[i];
    link.from = index[static_cast<size_t>(link.from)];
    link.to = index[static_cast<size_t>(link.to)];
    if (link.from < 0 || link.to < 0) continue;
    part.links.push_back(link);
    links.push_back(static_cast<int>(i));
  }
  return part;
}

// Equal for parts that differ only in names.
std::string looks(const Machine& machine) {
  std::string text;
  for (const Node& node : machine.nodes) {
    text += fmt::format("{} {} {}", name_of(node.type), node.host, node.numa);
    for (const char* each : {"sm", "p2p", "gdr"}) text += fmt::format(" {}", fact(node, each));
    text += '\n';
  }
  for (const Link& link : machine.links)
    text +=
        fmt::format("{} {} {} {} {}\n", link.from, link.to, name_of(link.type), link.gbps, link.us);
  return text;
}

std::vector<int> hosts_of_gpus(const Machine& machine) {
  std::vector<int> hosts;
  for (const int gpu : gpus(machine)) hosts.push_back(machine.nodes[static_cast<size_t>(gpu)].host);
  return hosts;
}

// A plan that competes, and how it is simulated.
struct Contender {
  const Generator* generator;
  bool kernel;  // loads and stores in peer memory
};

std::vector<Contender> contenders(const Machine& part, const Collective& collective) {
  const int n = collective.nranks;
  std::vector<Contender> found;
  const bool direct = n <= 32 && all_direct(part);
  for (const Generator& generator : generators()) {
    if (!generator.supports(collective) || generator.cpu_nodes > 0) continue;
    const bool scales = generator.name == kRing.name || generator.name == kHierarchical.name ||
                        (!collective.reduces() &&
                         (generator.name == kPairwise.name || generator.name == kTree.name));
    if (generator.name == kPeerMemory.name) {
      if (direct) found.push_back({&generator, true});
    } else if (!generator.peer_memory && (n <= kFewRanks || scales) &&
               generator.channels <= kUsualChannels) {
      found.push_back({&generator, false});
    }
  }
  return found;
}

}  // namespace

CommCosts::CommCosts(const Machine& machine)
    : machine_(machine), gpus_(gpus(machine)), rates_(gpu_rates(machine, nullptr)) {}

const CommCosts::Part& CommCosts::part_of(const std::vector<int>& ranks) {
  std::shared_ptr<Part>& part = parts_[ranks];
  if (part != nullptr) return *part;
  std::vector<int> places;
  for (const int rank : ranks) {
    if (rank < 0 || static_cast<size_t>(rank) >= gpus_.size())
      fail(ncclInvalidArgument, "rank {} is not on {}, which has {} GPUs", rank, machine_.name,
           gpus_.size());
    places.push_back(gpus_[static_cast<size_t>(rank)]);
  }
  part = std::make_shared<Part>();
  Machine own = part_machine(machine_, places, part->links);
  std::shared_ptr<const Machine>& alike = alike_[looks(own)];
  if (alike == nullptr) alike = std::make_shared<const Machine>(std::move(own));
  part->machine = alike;
  return *part;
}

const CommCosts::Simulated& CommCosts::simulated(const Part& part, CollectiveKind kind,
                                                 double bytes) {
  const auto [at, fresh] = memo_.try_emplace({part.machine.get(), {kind, bytes}});
  Simulated& best = at->second;
  if (!fresh) return best;
  const Machine& machine = *part.machine;
  const Collective collective{kind, static_cast<int>(gpus(machine).size()), 0};
  SimulatedMachine prepared(machine);
  SimulationOptions usual;
  usual.estimate = collective.nranks <= kFewRanks;
  usual.slice_bytes = collective.nranks > kManyRanks ? 1 << 20 : 256 << 10;
  usual.most_slices = collective.nranks > kManyRanks ? 2 : collective.nranks > kFewRanks ? 8 : 64;
  usual.most_messages = kMostMessages;
  const std::vector<int> hosts = hosts_of_hierarchy(hosts_of_gpus(machine));
  std::string why = "no plan fits";
  for (const Contender& each : contenders(machine, collective)) {
    if (each.generator->between_hosts && hosts.empty()) continue;
    try {
      SimulationOptions options =
          each.kernel ? kernel_costs(usual, rates_, collective.nranks) : lane_costs(usual, rates_);
      if (!best.plan.empty()) options.beyond_us = best.us;
      const Schedule schedule = each.generator->make_on(hosts, collective, false);
      const ScheduleGraph graph = step_graph(schedule);
      if (!each.kernel)
        options.slice_bytes = std::max(
            options.slice_bytes, bytes_per_pass(usual_cut(count_hosts(machine) > 1), graph,
                                                block_bytes(collective, bytes) / schedule.chunks));
      simulations_++;
      const Simulation run = simulate(prepared, graph, bytes, options);
      const double us = run.time_us + rates_.call_us + (each.kernel ? 0 : rates_.lane_start_us);
      if (!best.plan.empty() && us >= best.us) continue;
      best.us = us;
      best.plan = each.generator->name;
      best.bytes.clear();
      for (const LinkUse& use : run.links)
        if (static_cast<size_t>(use.link) < machine.links.size())
          best.bytes.emplace_back(use.link, use.bytes);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  if (best.plan.empty()) {
    memo_.erase(at);
    fail(ncclInvalidArgument, "{} of {} ranks cannot run on {}: {}", name(kind), collective.nranks,
         machine_.name, why);
  }
  return best;
}

const CommCost& CommCosts::cost(CollectiveKind kind, double bytes, const Instances& instances) {
  const auto [at, fresh] = costs_.try_emplace({{kind, bytes}, instances});
  CommCost& cost = at->second;
  if (!fresh) return cost;
  std::map<int, double> shares;
  try {
    for (const std::vector<int>& ranks : instances) {
      const Part& part = part_of(ranks);
      if (ranks.size() < 2 || bytes <= 0) continue;
      const Simulated& alone = simulated(part, kind, bytes);
      if (cost.plan.empty()) cost.plan = alone.plan;
      cost.us = std::max(cost.us, alone.us);
      for (const auto& [link, moved] : alone.bytes) {
        const int whole = part.links[static_cast<size_t>(link)];
        const double gbps = machine_.links[static_cast<size_t>(whole)].gbps;
        shares[whole] += moved / (gbps * 1e3 * alone.us);
      }
    }
  } catch (const Error&) {
    costs_.erase(at);
    throw;
  }
  double most = 1;
  for (const auto& [link, share] : shares) most = std::max(most, share);
  cost.us *= most;
  for (const auto& [link, share] : shares) cost.loads.push_back({link, share / most});
  return cost;
}

}  // namespace weft::workload
