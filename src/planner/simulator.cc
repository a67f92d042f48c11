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

enum class Kind : uint32_t { kMessage, kWrite, kStepEnd };

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
  double tail_us = 0;  // when its last byte is where its first byte is now
  int32_t target = 0;  // number of the FIFO, or of the piece that reads or writes
  int32_t span = 0;    // who sent it
  int32_t destination = 0;
  Purpose purpose = Purpose::kFifo;
};

struct FifoState {
  int64_t sent = 0, arrived = 0, taken = 0;
};

struct LaneState {
  int32_t step = 0, slice = 0;  // the one at work or waited for
  int32_t gate = 0;             // conditions of the step that are known to hold
  int32_t fifo = -1;            // the one it waits for, -1 if none
  bool busy = false;
  int32_t pieces = 1, begun = 0, ended = 0;  // of the step at work
  double end_us = 0;                         // of what has ended of it
  std::vector<int32_t> waiting;              // lanes that wait for this one
};

// What a step does at once. Steps that reach into peers' memory do many, several of them at a time;
// all others are one piece.
struct Piece {
  int32_t lane = 0;
  int32_t unfinished = 0;           // reads that have not begun to arrive; then writes
  double head_us = 0, tail_us = 0;  // when all that is read has begun to arrive, and has arrived
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
    for (const Step* step : graph_.steps) reaches_ = reaches_ || reaches(*step);
    if (reaches_) slices_ = 1;
    slice_bytes_ = chunk / slices_;
    free_us_.assign(machine.links.size(), 0.0);
    use_.resize(machine.links.size());
    for (size_t l = 0; l < machine.links.size(); l++) {
      use_[l].link = static_cast<int32_t>(l);
      us_per_byte_.push_back(machine.links[l].gbps > 0 ? 1e-3 / machine.links[l].gbps : 0);
    }
    fifos_.resize(graph_.fifos.size());
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
          write(index);
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

  static bool reaches(const Step& step) {
    const auto remote = [](const Operand& o) { return o.kind == Operand::Kind::kRemote; };
    return step.count == 0 || std::any_of(step.from.begin(), step.from.end(), remote) ||
           std::any_of(step.to.begin(), step.to.end(), remote);
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
    lane.busy = true;
    if (options_.record)
      spans_[static_cast<size_t>(span_number(number))] = {step_number(number), lane.slice, now_, 0,
                                                          cause};
    for_fifos(number, step.from.size(), step.to.size(),
              [&](int32_t f) { fifos_[static_cast<size_t>(f)].sent++; });
    lane.pieces = pieces(number);
    lane.begun = lane.ended = 0;
    lane.end_us = now_ + options_.step_us;
    const double begin = lane.end_us;
    while (lane.begun < std::min(lane.pieces, options_.fifo_depth)) begin_piece(number, begin);
  }

  template <typename Visit>
  void for_fifos(int32_t lane, size_t first, size_t count, Visit visit) {
    const auto operand =
        static_cast<size_t>(graph_.first_operand[static_cast<size_t>(step_number(lane))]) + first;
    for (size_t i = operand; i < operand + count; i++)
      if (graph_.operand_fifo[i] >= 0) visit(graph_.operand_fifo[i]);
  }

  // Memory is read and written piece by piece; a message is always whole.
  int32_t pieces(int32_t number) const {
    const Step& step = step_of(number);
    if (!reaches_) return 1;
    const auto is_peer = [](const Operand& o) { return o.kind == Operand::Kind::kPeer; };
    if (std::any_of(step.from.begin(), step.from.end(), is_peer) ||
        std::any_of(step.to.begin(), step.to.end(), is_peer))
      return 1;
    return static_cast<int32_t>(
        std::clamp(std::ceil(slice_bytes_ * step.count / options_.slice_bytes), 1.0,
                   static_cast<double>(options_.most_slices)));
  }

  double piece_bytes(int32_t lane) const {
    return slice_bytes_ * step_of(lane).count / lanes_[static_cast<size_t>(lane)].pieces;
  }

  void begin_piece(int32_t number, double at) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    lane.begun++;
    const size_t index = take(pieces_, unused_pieces_);
    pieces_[index] = {number, 0, at, at};
    for (const Operand& from : step.from)
      if (is_remote(rank, from)) pieces_[index].unfinished++;
    if (pieces_[index].unfinished == 0) {
      if (at > now_)
        events_.push(at, subject(Kind::kWrite, index));
      else
        write(index);
      return;
    }
    for (const Operand& from : step.from)
      if (is_remote(rank, from))
        send(routes_.between(from.owner, rank), Purpose::kRead, static_cast<int32_t>(index), number,
             rank, at, at);
  }

  // What the piece reads has begun to arrive: what it writes sets out.
  void write(size_t index) {
    const int32_t number = pieces_[index].lane;
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Step& step = step_of(number);
    const int32_t rank = graph_.lanes[static_cast<size_t>(number)].rank;
    lane.end_us = std::max({lane.end_us, now_, pieces_[index].tail_us});
    pieces_[index].unfinished = 1;  // this function itself
    for_fifos(number, step.from.size(), step.to.size(), [&](int32_t f) {
      const double left =
          send(fifo_routes_[static_cast<size_t>(f)], Purpose::kFifo, f, number,
               graph_.fifos[static_cast<size_t>(f)].destination, now_, pieces_[index].tail_us);
      lane.end_us = std::max(lane.end_us, left);
    });
    for (const Operand& to : step.to) {
      if (!is_remote(rank, to)) continue;
      pieces_[index].unfinished++;
      send(routes_.between(rank, to.owner), Purpose::kWrite, static_cast<int32_t>(index), number,
           to.owner, now_, pieces_[index].tail_us);
    }
    finish_part(index);
  }

  void finish_part(size_t index) {
    if (--pieces_[index].unfinished > 0) return;
    const int32_t number = pieces_[index].lane;
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    unused_pieces_.push_back(index);
    if (lane.begun < lane.pieces) begin_piece(number, now_);
    if (++lane.ended == lane.pieces)
      events_.push(lane.end_us, subject(Kind::kStepEnd, static_cast<size_t>(number)));
  }

  template <typename Item>
  static size_t take(std::vector<Item>& items, std::vector<size_t>& unused) {
    if (unused.empty()) {
      items.emplace_back();
      return items.size() - 1;
    }
    const size_t index = unused.back();
    unused.pop_back();
    return index;
  }

  // Returns when the message has left the sender, if it can set out now.
  double send(std::span<const int32_t> route, Purpose purpose, int32_t target, int32_t lane,
              int32_t destination, double at, double tail) {
    const size_t index = take(messages_, unused_messages_);
    messages_[index] = {route.data(),
                        static_cast<int32_t>(route.size()),
                        0,
                        piece_bytes(lane),
                        tail,
                        target,
                        span_number(lane),
                        destination,
                        purpose};
    if (at <= now_) return cross(index);
    events_.push(at, subject(Kind::kMessage, index));
    return at;
  }

  // The message's first byte enters its next link; returns when its last byte has left it. A link
  // is charged as soon as the message enters, though the last byte may come later from a slower
  // one.
  double cross(size_t index) {
    Message& message = messages_[index];
    const int32_t l = message.route[message.hop++];
    const auto link = static_cast<size_t>(l);
    const double busy = message.bytes * us_per_byte_[link];
    const double begin = std::max(now_, free_us_[link]), end = begin + busy;
    const double left = std::max(end, message.tail_us), us = machine_.links[link].us;
    free_us_[link] = end;
    message.tail_us = left + us;
    use_[link].busy_us += busy;
    use_[link].bytes += message.bytes;
    if (options_.record) transfers_.push_back({l, message.span, message.destination, begin, end});
    if (message.hop < message.hops) {
      events_.push(begin + us, subject(Kind::kMessage, index));
    } else if (message.purpose == Purpose::kRead) {
      Piece& piece = pieces_[static_cast<size_t>(message.target)];
      piece.head_us = std::max(piece.head_us, begin + us);
      piece.tail_us = std::max(piece.tail_us, message.tail_us);
      unused_messages_.push_back(index);
      if (--piece.unfinished == 0)
        events_.push(std::max(piece.head_us, writes(piece.lane) ? 0 : piece.tail_us),
                     subject(Kind::kWrite, static_cast<size_t>(message.target)));
    } else {
      events_.push(message.tail_us, subject(Kind::kMessage, index));
    }
    return left;
  }

  // Whether the step at work on the lane sends anything anywhere.
  bool writes(int32_t lane) const {
    const int32_t rank = graph_.lanes[static_cast<size_t>(lane)].rank;
    const auto& to = step_of(lane).to;
    return std::any_of(to.begin(), to.end(), [&](const Operand& o) {
      return o.kind == Operand::Kind::kPeer || is_remote(rank, o);
    });
  }

  void arrive(size_t index) {
    const Message message = messages_[index];
    unused_messages_.push_back(index);
    if (message.purpose == Purpose::kWrite) {
      const auto piece = static_cast<size_t>(message.target);
      LaneState& lane = lanes_[static_cast<size_t>(pieces_[piece].lane)];
      lane.end_us = std::max(lane.end_us, now_);
      finish_part(piece);
      return;
    }
    fifos_[static_cast<size_t>(message.target)].arrived++;
    wake(graph_.fifos[static_cast<size_t>(message.target)].consumer_lane, message.target,
         message.span);
  }

  void end_step(int32_t number) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const int32_t span = span_number(number);
    if (options_.record) spans_[static_cast<size_t>(span)].end_us = now_;
    if (now_ > end_us_ || last_span_ < 0) {
      end_us_ = now_;
      last_span_ = span;
    }
    taken_.clear();
    for_fifos(number, 0, step_of(number).from.size(), [&](int32_t f) { taken_.push_back(f); });
    lane.busy = false;
    lane.gate = 0;
    if (++lane.step == graph_.lanes[static_cast<size_t>(number)].size) {
      lane.step = 0;
      lane.slice++;
    }
    for (const int32_t f : taken_) {
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
  bool reaches_ = false;  // into peers' memory: such programs run once, see pieces()
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
  std::vector<Piece> pieces_;
  std::vector<size_t> unused_messages_, unused_pieces_;
  std::vector<int32_t> taken_, woken_;  // for end_step()
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
