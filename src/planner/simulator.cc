// The event loop. An event is a message that can enter its next link, or has arrived; a step that
// ends; or a step that has read enough from peers to write. Links need no queues: messages come in
// the order of their events, so the time at which a link is free again is all there is to know.
#include "src/planner/simulator.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/planner/event_queue.h"
#include "src/planner/routes.h"
#include "src/topology/flow_graph.h"

namespace weft {
namespace {

enum class Kind : uint32_t { kMessage, kStepEnd, kWrite };

constexpr uint32_t subject(Kind kind, size_t index) {
  return static_cast<uint32_t>(kind) << 30 | static_cast<uint32_t>(index);
}

// Steps times slices: enough for a good pipeline, few enough to wait for.
constexpr double kMostSpans = 1 << 21;

// What a message brings where it goes.
enum class Purpose : uint8_t { kFifo, kRead, kWrite };

struct Message {
  const int32_t* route = nullptr;
  int32_t hops = 0, hop = 0;
  double bytes = 0;
  int32_t target = 0;  // number of the FIFO, or of the lane whose step reads or writes
  int32_t span = 0;    // who sent it
  int32_t destination = 0;
  Purpose purpose = Purpose::kFifo;
};

struct FifoState {
  int64_t sent = 0, arrived = 0, taken = 0;
  std::vector<int32_t> spans;  // of the messages that arrived, a ring of fifo_depth
};

struct LaneState {
  int32_t step = 0, slice = 0;  // the one at work or waited for
  int32_t gate = 0;             // conditions of the step that are known to hold
  int32_t fifo = -1;            // the one it waits for, -1 if none
  bool busy = false;
  int32_t unfinished = 0;  // reads, then writes, of the present step that have not arrived
  double head_us = 0, tail_us = 0, end_us = 0;  // of what it reads; of all it does
  std::vector<int32_t> waiting;                 // lanes that wait for this one
};

class Simulator {
 public:
  Simulator(const Machine& machine, const Schedule& schedule, double bytes,
            const SimulationOptions& options)
      : machine_(machine),
        options_(options),
        graph_(schedule, false),
        ways_(flow_graph(machine)),
        routes_(ways_.machine) {
    const auto available = static_cast<int>(gpus(machine).size());
    if (schedule.collective.nranks > available)
      fail(ncclInvalidUsage, "schedule '{}' is for {} ranks, but {} has {} GPUs", schedule.name,
           schedule.collective.nranks, machine.name.empty() ? "the machine" : machine.name,
           available);
    if (options.fifo_depth < 1) fail(ncclInvalidUsage, "a FIFO of {} messages", options.fifo_depth);
    const double chunk = block_bytes(schedule.collective, bytes) / schedule.chunks;
    const double most = std::min<double>(options.most_slices,
                                         kMostSpans / static_cast<double>(graph_.steps.size() + 1));
    slices_ = static_cast<int32_t>(
        std::clamp(std::ceil(chunk / options.slice_bytes), 1.0, std::max(1.0, most)));
    slice_bytes_ = chunk / slices_;
    free_us_.assign(machine.links.size(), 0.0);
    use_.resize(machine.links.size());
    for (size_t l = 0; l < machine.links.size(); l++) {
      use_[l].link = static_cast<int32_t>(l);
      us_per_byte_.push_back(machine.links[l].gbps > 0 ? 1e-3 / machine.links[l].gbps : 0);
    }
    fifos_.resize(graph_.fifos.size());
    for (FifoState& fifo : fifos_) fifo.spans.resize(static_cast<size_t>(options.fifo_depth));
    lanes_.resize(graph_.lanes.size());
    find_routes();
    if (options.record) {
      spans_.resize(graph_.steps.size() * static_cast<size_t>(slices_));
    }
  }

  Simulation run(double bytes) {
    for (size_t l = 0; l < lanes_.size(); l++) try_begin(static_cast<int32_t>(l), -1);
    while (!events_.empty()) {
      const Event event = events_.pop();
      now_ = event.at;
      const auto index = static_cast<size_t>(event.subject & ((1u << 30) - 1));
      switch (static_cast<Kind>(event.subject >> 30)) {
        case Kind::kMessage:
          if (messages_[index].hop < messages_[index].hops)
            cross(index);
          else
            arrive(index);
          break;
        case Kind::kStepEnd:
          end_step(static_cast<int32_t>(index));
          break;
        case Kind::kWrite:
          write(static_cast<int32_t>(index));
          break;
      }
    }
    check_finished();
    return result(bytes);
  }

 private:
  const Step& step_of(int32_t lane) const {
    return *graph_.steps[static_cast<size_t>(step_number(lane))];
  }
  int32_t step_number(int32_t lane) const {
    return graph_.lanes[static_cast<size_t>(lane)].first_step +
           lanes_[static_cast<size_t>(lane)].step;
  }
  int32_t span_number(int32_t lane) const {
    return static_cast<int32_t>(graph_.steps.size()) * lanes_[static_cast<size_t>(lane)].slice +
           step_number(lane);
  }

  // Looks up the route of every FIFO, and checks that of every access to a peer's memory.
  void find_routes() {
    for (const ScheduleGraph::Fifo& fifo : graph_.fifos)
      if (routes_.between(fifo.source, fifo.destination).empty())
        no_way(fifo.source, fifo.destination);
    for (size_t n = 0; n < graph_.steps.size(); n++) {
      const int rank = graph_.id(static_cast<int32_t>(n)).rank;
      for (const Operand& o : graph_.steps[n]->from)
        if (is_remote(rank, o) && routes_.between(o.owner, rank).empty()) no_way(o.owner, rank);
      for (const Operand& o : graph_.steps[n]->to)
        if (is_remote(rank, o) && routes_.between(rank, o.owner).empty()) no_way(rank, o.owner);
    }
    for (const ScheduleGraph::Fifo& fifo : graph_.fifos)
      fifo_routes_.push_back(routes_.between(fifo.source, fifo.destination));
  }

  [[noreturn]] void no_way(int from, int to) const {
    const std::vector<int> ranks = gpus(machine_);
    fail(ncclInvalidUsage,
         "schedule '{}' sends from rank {} to rank {}, but {} has no way from {} to {} except over "
         "other GPUs",
         graph_.schedule.name, from, to, machine_.name.empty() ? "the machine" : machine_.name,
         machine_.nodes[static_cast<size_t>(ranks[static_cast<size_t>(from)])].id,
         machine_.nodes[static_cast<size_t>(ranks[static_cast<size_t>(to)])].id);
  }

  static bool is_remote(int rank, const Operand& operand) {
    return operand.kind == Operand::Kind::kRemote && operand.owner != rank;
  }

  // Begins the lane's step if all its conditions hold; otherwise whatever it waits for will try
  // again. `cause` is the span that made the last condition true.
  void try_begin(int32_t number, int32_t cause) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    if (lane.busy || lane.slice == slices_ || graph_.lanes[static_cast<size_t>(number)].size == 0)
      return;
    const Step& step = step_of(number);
    const auto dependencies = static_cast<int32_t>(step.after.size());
    const auto sources = static_cast<int32_t>(step.from.size());
    const auto conditions = dependencies + sources + static_cast<int32_t>(step.to.size());
    const int32_t* operand_fifo = &graph_.operand_fifo[static_cast<size_t>(
        graph_.first_operand[static_cast<size_t>(step_number(number))])];
    for (; lane.gate < conditions; lane.gate++) {
      if (lane.gate < dependencies) {
        if (!depends_on_done(number, step.after[static_cast<size_t>(lane.gate)])) return;
        continue;
      }
      const int32_t f = operand_fifo[lane.gate - dependencies];
      if (f < 0) continue;
      const FifoState& fifo = fifos_[static_cast<size_t>(f)];
      const bool receives = lane.gate < dependencies + sources;
      if (receives ? fifo.arrived == fifo.taken : fifo.sent - fifo.taken == options_.fifo_depth) {
        lane.fifo = f;
        return;
      }
    }
    lane.fifo = -1;
    begin_step(number, cause);
  }

  void wake(int32_t lane, int32_t fifo, int32_t cause) {
    if (lane >= 0 && lanes_[static_cast<size_t>(lane)].fifo == fifo) try_begin(lane, cause);
  }

  bool depends_on_done(int32_t number, const Dependency& d) {
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    const int32_t other = graph_.first_lane[static_cast<size_t>(rank)] + d.lane;
    LaneState& state = lanes_[static_cast<size_t>(other)];
    const int32_t slice = lanes_[static_cast<size_t>(number)].slice;
    if (state.slice > slice || (state.slice == slice && state.step > d.step)) return true;
    state.waiting.push_back(number);
    return false;
  }

  void begin_step(int32_t number, int32_t cause) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    const double bytes = slice_bytes_ * step.count;
    lane.busy = true;
    lane.end_us = lane.head_us = lane.tail_us = now_ + options_.step_us;
    if (options_.record)
      spans_[static_cast<size_t>(span_number(number))] = {step_number(number), lane.slice, now_, 0,
                                                          cause};
    const auto first =
        static_cast<size_t>(graph_.first_operand[static_cast<size_t>(step_number(number))]);
    for (size_t i = 0; i < step.to.size(); i++) {
      const int32_t f = graph_.operand_fifo[first + step.from.size() + i];
      if (f >= 0) fifos_[static_cast<size_t>(f)].sent++;
    }
    lane.unfinished = 0;
    for (const Operand& from : step.from)
      if (is_remote(rank, from)) lane.unfinished++;
    if (lane.unfinished == 0) {
      if (options_.step_us > 0)
        events_.push(lane.end_us, subject(Kind::kWrite, static_cast<size_t>(number)));
      else
        write(number);
      return;
    }
    for (const Operand& from : step.from)
      if (is_remote(rank, from))
        send(routes_.between(from.owner, rank), bytes, Purpose::kRead, number, number, rank,
             lane.end_us);
  }

  // Everything the step needs is there, or will be in time: what it writes sets out.
  void write(int32_t number) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    const double bytes = slice_bytes_ * step.count;
    lane.end_us = std::max(now_, lane.tail_us);
    lane.unfinished = 1;  // this function itself
    const auto first =
        static_cast<size_t>(graph_.first_operand[static_cast<size_t>(step_number(number))]);
    for (size_t i = 0; i < step.to.size(); i++) {
      const Operand& to = step.to[i];
      const int32_t f = graph_.operand_fifo[first + step.from.size() + i];
      if (f >= 0) {
        const ScheduleGraph::Fifo& fifo = graph_.fifos[static_cast<size_t>(f)];
        send(fifo_routes_[static_cast<size_t>(f)], bytes, Purpose::kFifo, f, number,
             fifo.destination, now_);
      } else if (is_remote(rank, to)) {
        lane.unfinished++;
        send(routes_.between(rank, to.owner), bytes, Purpose::kWrite, number, number, to.owner,
             now_);
      }
    }
    finish_part(number);
  }

  void send(std::span<const int32_t> route, double bytes, Purpose purpose, int32_t target,
            int32_t lane, int32_t destination, double at) {
    size_t index = messages_.size();
    if (unused_.empty()) {
      messages_.emplace_back();
    } else {
      index = unused_.back();
      unused_.pop_back();
    }
    messages_[index] = {route.data(),
                        static_cast<int32_t>(route.size()),
                        0,
                        bytes,
                        target,
                        span_number(lane),
                        destination,
                        purpose};
    if (at > now_) {
      events_.push(at, subject(Kind::kMessage, index));
      return;
    }
    const double left = cross(index);
    LaneState& sender = lanes_[static_cast<size_t>(lane)];
    if (purpose == Purpose::kFifo) sender.end_us = std::max(sender.end_us, left);
  }

  // The message enters its next link; returns when it has left it. Called in order of time.
  double cross(size_t index) {
    Message& message = messages_[index];
    const int32_t l = message.route[message.hop++];
    const auto link = static_cast<size_t>(l);
    const double busy = message.bytes * us_per_byte_[link];
    const double begin = std::max(now_, free_us_[link]), end = begin + busy;
    const double us = machine_.links[link].us;
    free_us_[link] = end;
    use_[link].busy_us += busy;
    use_[link].bytes += message.bytes;
    if (options_.record) transfers_.push_back({l, message.span, message.destination, begin, end});
    if (message.hop < message.hops) {
      // Cut through, but not so early that a faster link would run dry.
      const auto next = static_cast<size_t>(message.route[message.hop]);
      events_.push(us + std::max(begin, end - message.bytes * us_per_byte_[next]),
                   subject(Kind::kMessage, index));
    } else if (message.purpose == Purpose::kRead) {
      LaneState& lane = lanes_[static_cast<size_t>(message.target)];
      lane.head_us = std::max(lane.head_us, begin + us);
      lane.tail_us = std::max(lane.tail_us, end + us);
      unused_.push_back(index);
      if (--lane.unfinished == 0) begin_writing(message.target);
    } else {
      events_.push(end + us, subject(Kind::kMessage, index));
    }
    return end;
  }

  // The last of what a step reads is on its last link: when can it write without running dry?
  void begin_writing(int32_t number) {
    const LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    double fastest = 0;  // us to write it all
    bool writes = false;
    for (const Operand& to : step.to) {
      const int peer = to.kind == Operand::Kind::kPeer ? to.index : to.owner;
      if (to.kind == Operand::Kind::kLocal || peer == rank) continue;
      const double us = slice_bytes_ * step.count *
                        us_per_byte_[static_cast<size_t>(routes_.between(rank, peer).front())];
      fastest = writes ? std::min(fastest, us) : us;
      writes = true;
    }
    const double at = std::max({now_, lane.head_us, lane.tail_us - fastest});
    events_.push(at, subject(Kind::kWrite, static_cast<size_t>(number)));
  }

  void arrive(size_t index) {
    const Message message = messages_[index];
    unused_.push_back(index);
    if (message.purpose == Purpose::kWrite) {
      LaneState& lane = lanes_[static_cast<size_t>(message.target)];
      lane.end_us = std::max(lane.end_us, now_);
      finish_part(message.target);
      return;
    }
    FifoState& fifo = fifos_[static_cast<size_t>(message.target)];
    fifo.spans[static_cast<size_t>(fifo.arrived++ % options_.fifo_depth)] = message.span;
    wake(graph_.fifos[static_cast<size_t>(message.target)].consumer_lane, message.target,
         message.span);
  }

  void finish_part(int32_t number) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    if (--lane.unfinished == 0)
      events_.push(lane.end_us, subject(Kind::kStepEnd, static_cast<size_t>(number)));
  }

  void end_step(int32_t number) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t span = span_number(number);
    const auto first =
        static_cast<size_t>(graph_.first_operand[static_cast<size_t>(step_number(number))]);
    if (options_.record) spans_[static_cast<size_t>(span)].end_us = now_;
    if (now_ > end_us_ || last_span_ < 0) {
      end_us_ = now_;
      last_span_ = span;
    }
    lane.busy = false;
    lane.gate = 0;
    if (++lane.step == graph_.lanes[static_cast<size_t>(number)].size) {
      lane.step = 0;
      lane.slice++;
    }
    for (size_t i = 0; i < step.from.size(); i++) {
      const int32_t f = graph_.operand_fifo[first + i];
      if (f < 0) continue;
      fifos_[static_cast<size_t>(f)].taken++;
      wake(graph_.fifos[static_cast<size_t>(f)].producer_lane, f, span);
    }
    woken_.swap(lane.waiting);
    for (const int32_t other : woken_) try_begin(other, span);
    woken_.clear();
    try_begin(number, span);
  }

  void check_finished() const {
    for (size_t l = 0; l < lanes_.size(); l++) {
      if (graph_.lanes[l].size == 0 || lanes_[l].slice == slices_) continue;
      const auto lane = static_cast<int32_t>(l);
      fail(ncclInvalidUsage, "schedule '{}' gets stuck: {} never begins (FIFOs of {} messages)",
           graph_.schedule.name, describe(graph_.id(step_number(lane))), options_.fifo_depth);
    }
  }

  Simulation result(double bytes) {
    Simulation simulation;
    simulation.time_us = end_us_;
    simulation.algbw_gbps = end_us_ > 0 ? bytes / end_us_ * 1e-3 : 0;
    simulation.slices = slices_;
    simulation.events = events_.pushed();
    for (const LinkUse& use : use_)
      if (use.busy_us > 0) simulation.links.push_back(use);
    std::stable_sort(simulation.links.begin(), simulation.links.end(),
                     [](const LinkUse& a, const LinkUse& b) { return a.busy_us > b.busy_us; });
    if (!options_.record) return simulation;
    for (int32_t span = last_span_; span >= 0; span = spans_[static_cast<size_t>(span)].cause)
      simulation.critical.push_back(span);
    std::reverse(simulation.critical.begin(), simulation.critical.end());
    std::stable_sort(transfers_.begin(), transfers_.end(),
                     [](const LinkSpan& a, const LinkSpan& b) { return a.begin_us < b.begin_us; });
    simulation.steps = std::move(spans_);
    simulation.transfers = std::move(transfers_);
    return simulation;
  }

  const Machine& machine_;
  const SimulationOptions options_;
  const ScheduleGraph graph_;
  const FlowGraph ways_;  // has the machine's links, by the same numbers
  Routes routes_;
  std::vector<std::span<const int32_t>> fifo_routes_;
  int32_t slices_ = 1;
  double slice_bytes_ = 0;

  EventQueue events_;
  double now_ = 0, end_us_ = 0;
  int32_t last_span_ = -1;
  std::vector<double> us_per_byte_, free_us_;  // per link
  std::vector<LinkUse> use_;
  std::vector<FifoState> fifos_;
  std::vector<LaneState> lanes_;
  std::vector<Message> messages_;
  std::vector<size_t> unused_;
  std::vector<int32_t> woken_;
  std::vector<StepSpan> spans_;
  std::vector<LinkSpan> transfers_;
};

}  // namespace

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
  const Link& l = machine.links[static_cast<size_t>(link)];
  return machine.nodes[static_cast<size_t>(l.from)].id + "->" +
         machine.nodes[static_cast<size_t>(l.to)].id;
}

Simulation simulate(const Machine& machine, const Schedule& schedule, double bytes,
                    const SimulationOptions& options) {
  return Simulator(machine, schedule, bytes, options).run(bytes);
}

}  // namespace weft
