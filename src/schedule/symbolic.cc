// The symbolic executor behind verify().
#include "src/schedule/symbolic.h"

#include <deque>

#include "src/base/error.h"
#include "src/schedule/contributions.h"

namespace weft {
namespace {

// A chunk's content: piece `id`, reduced over the ranks in set `set`. id < 0: nothing defined.
struct Value {
  int32_t id = -1;
  int32_t set = -1;
  bool raw = false;  // still the caller's input, untouched
};

struct Message {
  std::vector<Value> values;
  int32_t sender = 0, operand = 0;  // which destination operand of which step sent it
};

class Execution {
 public:
  Execution(const ScheduleGraph& graph, int fifo_depth)
      : g_(graph),
        depth_(static_cast<size_t>(fifo_depth)),
        sets_(graph.schedule.collective.nranks),
        fifos_(graph.fifos.size()),
        position_(graph.lanes.size(), 0),
        queued_(graph.lanes.size(), false) {
    result_.facts.resize(g_.steps.size());
    result_.first_match.resize(g_.steps.size());
    for (size_t n = 0; n < g_.steps.size(); n++) {
      result_.first_match[n] = static_cast<int32_t>(result_.matches.size());
      result_.matches.insert(result_.matches.end(), g_.steps[n]->to.size(), -1);
    }
    load_inputs();
  }

  SymbolicResult run() {
    for (size_t l = 0; l < g_.lanes.size(); l++) enqueue(static_cast<int32_t>(l));
    while (!ready_.empty()) {
      const int32_t lane = ready_.front();
      ready_.pop_front();
      queued_[static_cast<size_t>(lane)] = false;
      while (try_step(lane)) {
      }
    }
    check_finished();
    check_outputs();
    return std::move(result_);
  }

 private:
  void load_inputs() {
    const Schedule& s = g_.schedule;
    memory_.resize(s.ranks.size());
    for (int r = 0; r < s.collective.nranks; r++) {
      memory_[static_cast<size_t>(r)].resize(static_cast<size_t>(g_.locations(r)));
      for (int i = 0; i < g_.input_chunks(r); i++) {
        const ChunkGoal start = s.collective.start(r, i, s.chunks);
        at(r, Buffer::kInput, i) = {start.id, Contributions::only(r), true};
      }
    }
  }

  Value& at(int rank, Buffer buffer, int index) {
    return memory_[static_cast<size_t>(rank)]
                  [static_cast<size_t>(g_.location(rank, buffer, index))];
  }

  void enqueue(int32_t lane) {
    if (lane < 0 || queued_[static_cast<size_t>(lane)]) return;
    queued_[static_cast<size_t>(lane)] = true;
    ready_.push_back(lane);
  }

  // The FIFO of an operand of a step; sources are numbered before destinations.
  int32_t fifo_of(int32_t step, size_t operand) const {
    return g_
        .operand_fifo[static_cast<size_t>(g_.first_operand[static_cast<size_t>(step)]) + operand];
  }

  bool is_ready(const ScheduleGraph::LaneRef& lane, int32_t number, const Step& step) const {
    const int32_t first = g_.first_lane[static_cast<size_t>(lane.rank)];
    for (const Dependency& d : step.after)
      if (position_[static_cast<size_t>(first + d.lane)] <= d.step) return false;
    for (size_t i = 0; i < step.from.size(); i++)
      if (step.from[i].kind == Operand::Kind::kPeer &&
          fifos_[static_cast<size_t>(fifo_of(number, i))].empty())
        return false;
    for (size_t i = 0; i < step.to.size(); i++)
      if (step.to[i].kind == Operand::Kind::kPeer &&
          fifos_[static_cast<size_t>(fifo_of(number, step.from.size() + i))].size() >= depth_)
        return false;
    return true;
  }

  bool try_step(int32_t lane_number) {
    const auto& lane = g_.lanes[static_cast<size_t>(lane_number)];
    int32_t& position = position_[static_cast<size_t>(lane_number)];
    if (position >= lane.size) return false;
    const int32_t number = lane.first_step + position;
    const Step& step = *g_.steps[static_cast<size_t>(number)];
    if (!is_ready(lane, number, step)) return false;
    perform(lane, number, step);
    result_.order.push_back(number);
    position++;
    wake(lane, number, step);
    return true;
  }

  void perform(const ScheduleGraph::LaneRef& lane, int32_t number, const Step& step) {
    if (step.from.empty() && step.to.empty()) return;
    StepFacts& facts = result_.facts[static_cast<size_t>(number)];
    std::vector<Value> value;
    for (size_t i = 0; i < step.from.size(); i++) {
      std::vector<Value> source = take(lane, number, step, i);
      size_t raw = 0;
      for (const Value& v : source) raw += v.raw ? 1 : 0;
      if (raw == source.size()) facts.raw_sources |= uint64_t{1} << i;
      if (raw != source.size() && raw != 0 && g_.schedule.collective.reduces())
        fail(ncclInvalidUsage,
             "{}: source {} holds inputs as given beside chunks that are not; one step takes only "
             "one kind",
             describe(g_.id(number)), i);
      if (i == 0) {
        value = std::move(source);
      } else {
        combine(number, value, source);
      }
    }
    if (step.count > 0) {
      facts.piece = value[0].id;
      check_uniform(step, value);
    }
    const bool reduces = g_.schedule.collective.reduces() && step.from.size() > 1;
    size_t complete = 0;
    for (Value& v : value) {
      v.raw = false;
      complete += v.set == sets_.everyone() ? 1 : 0;
    }
    facts.completes = reduces && complete == value.size();
    if (reduces && complete != 0 && complete != value.size())
      fail(ncclInvalidUsage,
           "{}: completes some of its chunks only; one step completes all or none",
           describe(g_.id(number)));
    for (size_t i = 0; i < step.to.size(); i++) {
      const Operand& to = step.to[i];
      if (to.kind == Operand::Kind::kPeer) {
        fifos_[static_cast<size_t>(fifo_of(number, step.from.size() + i))].push_back(
            {value, number, static_cast<int32_t>(i)});
        continue;
      }
      for (int c = 0; c < step.count; c++)
        at(ScheduleGraph::memory_owner(lane.rank, to), to.buffer, to.index + c) =
            value[static_cast<size_t>(c)];
    }
  }

  void check_uniform(const Step& step, const std::vector<Value>& value) {
    const int chunks = g_.schedule.chunks;
    const auto differs = [&](const Operand& operand, int c) {
      return operand.kind != Operand::Kind::kPeer && operand.buffer != Buffer::kScratch &&
             (operand.index + c) % chunks != value[static_cast<size_t>(c)].id % chunks;
    };
    for (int c = 0; c < step.count; c++) {
      if ((value[0].id + c) % chunks != value[static_cast<size_t>(c)].id % chunks)
        result_.uniform_only = true;
      for (const Operand& operand : step.from) result_.uniform_only |= differs(operand, c);
      for (const Operand& operand : step.to) result_.uniform_only |= differs(operand, c);
    }
  }

  std::vector<Value> take(const ScheduleGraph::LaneRef& lane, int32_t number, const Step& step,
                          size_t i) {
    const Operand& from = step.from[i];
    if (from.kind == Operand::Kind::kPeer) {
      auto& fifo = fifos_[static_cast<size_t>(fifo_of(number, i))];
      Message message = std::move(fifo.front());
      fifo.pop_front();
      if (static_cast<int>(message.values.size()) != step.count)
        fail(ncclInvalidUsage, "{} receives {} chunks, but {} sent {}", describe(g_.id(number)),
             step.count, describe(g_.id(message.sender)), message.values.size());
      result_.matches[static_cast<size_t>(result_.first_match[static_cast<size_t>(message.sender)] +
                                          message.operand)] = number;
      return std::move(message.values);
    }
    std::vector<Value> values;
    for (int c = 0; c < step.count; c++) {
      const Value& v =
          at(ScheduleGraph::memory_owner(lane.rank, from), from.buffer, from.index + c);
      if (v.id < 0)
        fail(ncclInvalidUsage, "{} reads {}, which holds nothing yet", describe(g_.id(number)),
             describe(from.buffer, from.index + c));
      values.push_back(v);
    }
    return values;
  }

  void combine(int32_t number, std::vector<Value>& value, const std::vector<Value>& other) {
    for (size_t c = 0; c < value.size(); c++) {
      if (value[c].id != other[c].id)
        fail(ncclInvalidUsage, "{} reduces piece {} with piece {}, which are different data",
             describe(g_.id(number)), value[c].id, other[c].id);
      const int32_t sum = sets_.unite(value[c].set, other[c].set);
      if (sum < 0)
        fail(ncclInvalidUsage, "{} counts a rank's contribution to piece {} twice",
             describe(g_.id(number)), value[c].id);
      value[c].set = sum;
    }
  }

  void wake(const ScheduleGraph::LaneRef& lane, int32_t number, const Step& step) {
    for (size_t i = 0; i < step.from.size(); i++)
      if (step.from[i].kind == Operand::Kind::kPeer)
        enqueue(g_.fifos[static_cast<size_t>(fifo_of(number, i))].producer_lane);
    for (size_t i = 0; i < step.to.size(); i++)
      if (step.to[i].kind == Operand::Kind::kPeer)
        enqueue(g_.fifos[static_cast<size_t>(fifo_of(number, step.from.size() + i))].consumer_lane);
    const auto rank = static_cast<size_t>(lane.rank);
    for (int32_t l = g_.first_lane[rank]; l < g_.first_lane[rank + 1]; l++) enqueue(l);
  }

  void check_finished() {
    for (size_t l = 0; l < g_.lanes.size(); l++) {
      const auto& lane = g_.lanes[l];
      if (position_[l] == lane.size) continue;
      const int32_t number = lane.first_step + position_[l];
      fail(ncclInvalidUsage, "{} never runs: {} (FIFO depth {})", describe(g_.id(number)),
           why_blocked(lane, number), depth_);
    }
    for (size_t f = 0; f < fifos_.size(); f++)
      if (!fifos_[f].empty())
        fail(ncclInvalidUsage, "{} sends to rank {}, which never receives it",
             describe(g_.id(fifos_[f].front().sender)), g_.fifos[f].destination);
  }

  std::string why_blocked(const ScheduleGraph::LaneRef& lane, int32_t number) const {
    const Step& step = *g_.steps[static_cast<size_t>(number)];
    const int32_t first = g_.first_lane[static_cast<size_t>(lane.rank)];
    for (const Dependency& d : step.after)
      if (position_[static_cast<size_t>(first + d.lane)] <= d.step)
        return fmt::format("it waits for lane {} step {}", d.lane, d.step);
    for (size_t i = 0; i < step.from.size(); i++)
      if (step.from[i].kind == Operand::Kind::kPeer &&
          fifos_[static_cast<size_t>(fifo_of(number, i))].empty())
        return fmt::format("it waits for a message from rank {}", step.from[i].index);
    return "a FIFO it sends to stays full";
  }

  void check_outputs() {
    const Schedule& s = g_.schedule;
    for (int r = 0; r < s.collective.nranks; r++) {
      for (int i = 0; i < g_.output_chunks(r); i++) {
        const ChunkGoal goal = s.collective.goal(r, i, s.chunks);
        const Value& v = at(r, Buffer::kOutput, i);
        const int32_t want = goal.contributor == ChunkGoal::kEveryone
                                 ? sets_.everyone()
                                 : Contributions::only(goal.contributor);
        const std::string where = fmt::format("rank {} {}", r, describe(Buffer::kOutput, i));
        if (v.id < 0) fail(ncclInvalidUsage, "{} is never written", where);
        if (v.id != goal.id)
          fail(ncclInvalidUsage, "{} ends with piece {}, it should hold piece {}", where, v.id,
               goal.id);
        if (v.set != want)
          fail(ncclInvalidUsage, "{} ends with the wrong contributions: rank {} is {}", where,
               sets_.first_difference(v.set, want),
               goal.contributor == ChunkGoal::kEveryone ? "missing" : "missing or too many");
      }
    }
  }

  const ScheduleGraph& g_;
  const size_t depth_;
  Contributions sets_;
  std::vector<std::vector<Value>> memory_;
  std::vector<std::deque<Message>> fifos_;
  std::vector<int32_t> position_;
  std::vector<bool> queued_;
  std::deque<int32_t> ready_;
  SymbolicResult result_;
};

}  // namespace

SymbolicResult execute_symbolically(const ScheduleGraph& graph, int fifo_depth) {
  return Execution(graph, fifo_depth).run();
}

}  // namespace weft
