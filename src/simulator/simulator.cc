// Set-up and result of a simulation; simulation_run.h has the rest.
#include "src/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "src/base/error.h"
#include "src/simulator/cpu_nodes.h"
#include "src/simulator/simulation_run.h"

namespace weft {
namespace {

// Steps times slices: enough for a good pipeline, and still fast to simulate.
constexpr double kMostSpans = 1 << 21;

bool uses_peer_memory(const Step& step) {
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
  if (schedule.cpu_nodes > 0) check_cpu_nodes(machine_, schedule);
  if (options.fifo_depth < 1) fail(ncclInvalidUsage, "a FIFO of {} messages", options.fifo_depth);
  if (!(options.slice_bytes > 0) || options.most_slices < 1)
    fail(ncclInvalidUsage, "slices of {} bytes, at most {}", options.slice_bytes,
         options.most_slices);
  const double chunk = block_bytes(schedule.collective, bytes) / schedule.chunks;
  const double most =
      std::min({static_cast<double>(options.most_slices),
                kMostSpans / static_cast<double>(graph_.steps.size() + 1),
                options.most_messages / static_cast<double>(graph_.senders.size() + 1)});
  slices_ = static_cast<int32_t>(
      std::clamp(std::ceil(chunk / options.slice_bytes), 1.0, std::max(1.0, most)));
  for (const Step* step : graph_.steps)
    uses_peer_memory_ = uses_peer_memory_ || uses_peer_memory(*step);
  if (uses_peer_memory_) slices_ = 1;
  slice_bytes_ = chunk / slices_;
  simulated_ = std::min(slices_, std::max(2, options.most_simulated));
  for (const Link& link : machine_.links)
    links_.push_back({link.gbps > 0 ? 1e-3 / link.gbps : 0, link.us});
  find_routes();
  plan_steps();
  if (options.record) spans_.resize(graph_.steps.size() * static_cast<size_t>(slices_));
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
  for (size_t f = 0; f < graph_.fifos.size(); f++) {
    const ScheduleGraph::Fifo& fifo = graph_.fifos[f];
    FifoState state;
    state.producer_lane = fifo.producer_lane;
    state.consumer_lane = fifo.consumer_lane;
    state.destination = fifo.destination;
    state.route = hinted[f].empty() ? routes_.between(fifo.source, fifo.destination) : hinted[f];
    fifos_.push_back(state);
  }
}

void SimulationRun::plan_steps() {
  std::vector<double> busy(links_.size(), 0.0);
  for (size_t n = 0; n < graph_.steps.size(); n++) {
    const Step& step = *graph_.steps[n];
    const int32_t rank = graph_.lanes[static_cast<size_t>(graph_.step_lane[n])].rank;
    const auto here = [&] { return static_cast<int32_t>(waits_.size()); };
    StepPlan plan;
    plan.bytes = slice_bytes_ * step.count;
    plan.after = here();
    for (const Dependency& d : step.after)
      waits_.push_back({graph_.first_lane[static_cast<size_t>(rank)] + d.lane,
                        graph_.step_number(rank, d.lane, d.step)});
    const int32_t* fifo = graph_.operand_fifo.data() + graph_.first_operand[n];
    const auto add = [&](const std::vector<Operand>& operands) {
      for (size_t i = 0; i < operands.size(); i++, fifo++)
        if (*fifo >= 0) waits_.push_back({*fifo, 0, share_of(operands[i])});
    };
    plan.takes = here();
    add(step.from);
    plan.sends = here();
    add(step.to);
    plan.end = here();
    // The simulation has larger slices than the executor. Count the overhead of all the executor's
    // slices. Schedules that access peer memory have none.
    const double cut = uses_peer_memory_ ? 1.0 : std::max(1.0, slice_bytes_ / options_.slice_bytes);
    const bool node = rank >= graph_.schedule.collective.nranks;
    plan.us = cut * (options_.step_us + (plan.end - plan.takes) * (node ? options_.node_message_us
                                                                        : options_.message_us));
    if (!node) plan.us += (plan.sends - plan.takes) * plan.bytes * 1e-6 * options_.receive_us_mb;
    plan.us += codec_us(step, plan.bytes);
    plans_.push_back(plan);
    for (int32_t w = plan.sends; w < plan.end; w++)
      for (const int32_t l : fifos_[static_cast<size_t>(waits_[static_cast<size_t>(w)].on)].route)
        busiest_us_ = std::max(busiest_us_, busy[static_cast<size_t>(l)] +=
                                            plan.bytes * waits_[static_cast<size_t>(w)].share *
                                            links_[static_cast<size_t>(l)].us_per_byte);
  }
  for (const ScheduleGraph::LaneRef& lane : graph_.lanes) {
    LaneState state;
    state.first = state.step = lane.first_step;
    state.end = lane.first_step + lane.size;
    if (lane.size > 0) state.gate = plans_[static_cast<size_t>(lane.first_step)].after;
    lanes_.push_back(std::move(state));
  }
  const auto active = std::count_if(graph_.lanes.begin(), graph_.lanes.end(),
                                    [](const auto& lane) { return lane.size > 0; });
  lanes_left_.assign(static_cast<size_t>(slices_), static_cast<int32_t>(active));
}

double SimulationRun::share_of(const Operand& operand) const {
  if (operand.codec == 0) return 1;
  const CodecSpec& spec = graph_.schedule.codecs[operand.codec - 1u];
  const auto element = static_cast<uint32_t>(options_.element_bytes);
  return static_cast<double>(encoded_bytes(spec, kMostBlock, element)) / (kMostBlock * element);
}

double SimulationRun::codec_us(const Step& step, double bytes) const {
  const auto& codecs = graph_.schedule.codecs;
  if (codecs.empty()) return 0;
  const auto cost = [&](uint8_t codec) -> const CodecCost& {
    return options_.codecs[static_cast<size_t>(codecs[codec - 1u].kind)];
  };
  double us_mb = 0;
  uint8_t encoded = 0;  // a step encodes once for all destinations, and passes on what came coded
  if (step.from.size() == 1) encoded = step.from[0].codec;
  for (const Operand& from : step.from)
    if (from.codec != 0) {
      us_mb += cost(from.codec).decode_us_mb;
      if (from.kind != Operand::Kind::kPeer) us_mb += cost(from.codec).encode_us_mb;
    }
  for (const Operand& to : step.to) {
    if (to.codec == 0) continue;
    if (to.codec != encoded) us_mb += cost(to.codec).encode_us_mb;
    encoded = to.codec;
    if (to.kind != Operand::Kind::kPeer) us_mb += cost(to.codec).decode_us_mb;
  }
  return us_mb * bytes * 1e-6;
}

// Whether the links form a path between the two ranks that passes no other GPU.
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
    if (graph_.lanes[l].size == 0 || lanes_[l].slice == simulated_) continue;
    const auto lane = static_cast<int32_t>(l);
    fail(ncclInvalidUsage, "schedule '{}' gets stuck: {} never begins (FIFOs of {} messages)",
         graph_.schedule.name, describe(graph_.id(step_number(lane))), options_.fifo_depth);
  }
}

Simulation SimulationRun::result() {
  Simulation simulation;
  simulation.time_us = given_up_us_ > 0 ? given_up_us_ : end_us_ + rest_us();
  simulation.algbw_gbps = simulation.time_us > 0 ? bytes_ / simulation.time_us * 1e-3 : 0;
  simulation.slices = slices_;
  simulation.simulated = simulated_;
  simulation.even = given_up_us_ == 0 && (simulated_ == slices_ || period_ > 0);
  simulation.events = events_.pushed();
  const double all = static_cast<double>(slices_) / simulated_;
  for (size_t l = 0; l < links_.size(); l++)
    if (links_[l].busy_us > 0)
      simulation.links.push_back(
          {static_cast<int32_t>(l), links_[l].busy_us * all, links_[l].bytes * all});
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
    return ScheduleGraph(schedule, true);  // it may write to the input, which only in-place calls
                                           // allow
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
