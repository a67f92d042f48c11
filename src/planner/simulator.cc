// Set-up and result of a simulation; simulation_run.h has the rest.
#include "src/planner/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "src/base/error.h"
#include "src/planner/simulation_run.h"

namespace weft {
namespace {

// Steps times slices: enough for a good pipeline, few enough to wait for.
constexpr double kMostSpans = 1 << 21;

bool reaches(const Step& step) {
  const auto remote = [](const Operand& o) { return o.kind == Operand::Kind::kRemote; };
  return step.count == 0 || std::any_of(step.from.begin(), step.from.end(), remote) ||
         std::any_of(step.to.begin(), step.to.end(), remote);
}

}  // namespace

SimulationRun::SimulationRun(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                             const SimulationOptions& options)
    : machine_(machine.machine),
      bytes_(bytes),
      options_(options),
      graph_(graph),
      ways_(machine.ways),
      routes_(machine.routes) {
  const Schedule& schedule = graph.schedule;
  const auto available = static_cast<int>(gpus(machine_).size());
  if (schedule.collective.nranks > available)
    fail(ncclInvalidUsage, "schedule '{}' is for {} ranks, but {} has {} GPUs", schedule.name,
         schedule.collective.nranks, machine_.name.empty() ? "the machine" : machine_.name,
         available);
  if (options.fifo_depth < 1) fail(ncclInvalidUsage, "a FIFO of {} messages", options.fifo_depth);
  if (!(options.slice_bytes > 0) || options.most_slices < 1)
    fail(ncclInvalidUsage, "slices of {} bytes, at most {}", options.slice_bytes,
         options.most_slices);
  const double chunk = block_bytes(schedule.collective, bytes) / schedule.chunks;
  const double most = std::min<double>(options.most_slices,
                                       kMostSpans / static_cast<double>(graph_.steps.size() + 1));
  slices_ = static_cast<int32_t>(
      std::clamp(std::ceil(chunk / options.slice_bytes), 1.0, std::max(1.0, most)));
  for (const Step* step : graph_.steps) reaches_ = reaches_ || reaches(*step);
  if (reaches_) slices_ = 1;
  slice_bytes_ = chunk / slices_;
  free_us_.assign(machine_.links.size(), 0.0);
  use_.resize(machine_.links.size());
  for (size_t l = 0; l < machine_.links.size(); l++) {
    use_[l].link = static_cast<int32_t>(l);
    us_per_byte_.push_back(machine_.links[l].gbps > 0 ? 1e-3 / machine_.links[l].gbps : 0);
  }
  fifos_.resize(graph_.fifos.size());
  lanes_.resize(graph_.lanes.size());
  find_routes();
  if (options.record) {
    spans_.resize(graph_.steps.size() * static_cast<size_t>(slices_));
  }
}

void SimulationRun::find_routes() {
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::span<const int32_t>> hints;
  for (const RouteHint& hint : graph_.schedule.routes) {
    if (!leads(hint))
      fail(ncclInvalidUsage,
           "schedule '{}' was made for another machine: {} has no such way from rank {} to rank {} "
           "as channel {} is meant to take",
           graph_.schedule.name, machine_.name.empty() ? "this one" : machine_.name, hint.from,
           hint.to, hint.channel);
    hints[{hint.from, hint.to, hint.channel}] = hint.links;
  }
  std::vector<std::span<const int32_t>> hinted;
  for (const ScheduleGraph::Fifo& fifo : graph_.fifos) {
    const auto hint = hints.find({fifo.source, fifo.destination, fifo.channel});
    hinted.push_back(hint == hints.end() ? std::span<const int32_t>() : hint->second);
    if (hinted.back().empty() && routes_.between(fifo.source, fifo.destination).empty())
      no_way(fifo.source, fifo.destination);
  }
  for (size_t n = 0; n < graph_.steps.size(); n++) {
    const int rank = graph_.id(static_cast<int32_t>(n)).rank;
    for (const Operand& o : graph_.steps[n]->from)
      if (is_remote(rank, o) && routes_.between(o.owner, rank).empty()) no_way(o.owner, rank);
    for (const Operand& o : graph_.steps[n]->to)
      if (is_remote(rank, o) && routes_.between(rank, o.owner).empty()) no_way(rank, o.owner);
  }
  for (size_t f = 0; f < graph_.fifos.size(); f++)
    fifo_routes_.push_back(
        hinted[f].empty() ? routes_.between(graph_.fifos[f].source, graph_.fifos[f].destination)
                          : hinted[f]);
}

// Whether the links follow each other from rank to rank, and through no other GPU.
bool SimulationRun::leads(const RouteHint& hint) const {
  const Machine& ways = ways_.machine;
  const auto ranks = static_cast<int32_t>(gpus(ways).size());
  if (hint.from < 0 || hint.to < 0 || hint.from >= ranks || hint.to >= ranks || hint.links.empty())
    return false;
  int node = gpus(ways)[static_cast<size_t>(hint.from)];
  const int end = gpus(ways)[static_cast<size_t>(hint.to)];
  for (const int32_t l : hint.links) {
    if (l < 0 || static_cast<size_t>(l) >= ways.links.size()) return false;
    const Link& link = ways.links[static_cast<size_t>(l)];
    if (link.from != node || link.gbps <= 0) return false;
    node = link.to;
    if (ways.nodes[static_cast<size_t>(node)].type == NodeType::kGpu && node != end) return false;
  }
  return node == end;
}

void SimulationRun::no_way(int from, int to) const {
  const std::vector<int> ranks = gpus(machine_);
  fail(ncclInvalidUsage,
       "schedule '{}' sends from rank {} to rank {}, but {} has no way from {} to {} except over "
       "other GPUs",
       graph_.schedule.name, from, to, machine_.name.empty() ? "the machine" : machine_.name,
       machine_.nodes[ranks[from]].id, machine_.nodes[ranks[to]].id);
}

void SimulationRun::check_finished() const {
  for (size_t l = 0; l < lanes_.size(); l++) {
    if (graph_.lanes[l].size == 0 || lanes_[l].slice == slices_) continue;
    const auto lane = static_cast<int32_t>(l);
    fail(ncclInvalidUsage, "schedule '{}' gets stuck: {} never begins (FIFOs of {} messages)",
         graph_.schedule.name, describe(graph_.id(step_number(lane))), options_.fifo_depth);
  }
}

Simulation SimulationRun::result() {
  Simulation simulation;
  simulation.time_us = end_us_;
  simulation.algbw_gbps = end_us_ > 0 ? bytes_ / end_us_ * 1e-3 : 0;
  simulation.slices = slices_;
  simulation.events = events_.pushed();
  for (const LinkUse& use : use_)
    if (use.busy_us > 0) simulation.links.push_back(use);
  std::stable_sort(simulation.links.begin(), simulation.links.end(),
                   [](const LinkUse& a, const LinkUse& b) { return a.busy_us > b.busy_us; });
  if (!options_.record) return simulation;
  for (int32_t span = last_span_; span >= 0; span = spans_[span].cause)
    simulation.critical.push_back(span);
  std::reverse(simulation.critical.begin(), simulation.critical.end());
  std::stable_sort(transfers_.begin(), transfers_.end(),
                   [](const LinkSpan& a, const LinkSpan& b) { return a.begin_us < b.begin_us; });
  simulation.steps = std::move(spans_);
  simulation.transfers = std::move(transfers_);
  return simulation;
}

ScheduleGraph step_graph(const Schedule& schedule) {
  try {
    return ScheduleGraph(schedule, false);
  } catch (const Error&) {
    return ScheduleGraph(schedule, true);  // it may write where only a call in place lets it
  }
}

double block_bytes(const Collective& collective, double bytes) {
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return bytes / collective.nranks;
    default:
      return bytes;
  }
}

std::string link_name(const Machine& machine, int link) {
  const Link& l = machine.links[link];
  return machine.nodes[l.from].id + "->" + machine.nodes[l.to].id;
}

Simulation simulate(const Machine& machine, const Schedule& schedule, double bytes,
                    const SimulationOptions& options) {
  SimulatedMachine simulated(machine);
  return simulate(simulated, step_graph(schedule), bytes, options);
}

Simulation simulate(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                    const SimulationOptions& options) {
  return SimulationRun(machine, graph, bytes, options).run();
}

}  // namespace weft
