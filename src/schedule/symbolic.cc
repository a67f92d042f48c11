// The symbolic executor behind verify().
#include "src/schedule/symbolic.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/error.h"
#include "src/schedule/contributions.h"
#include "src/schedule/histories.h"

namespace weft {
namespace {

// Limit on the memory of partial sums in flight.
constexpr size_t kMostSetBytes = size_t{2} << 30;

// A chunk's content: piece `id`, reduced over the ranks in set `set`. id < 0: undefined.
struct Value {
  int32_t id = -1;
  int32_t set = -1;
  bool raw = false;  // still the caller's input, untouched
  History history;   // of schedules with codecs
};

class Execution {
 public:
  Execution(const ScheduleGraph& graph, int fifo_depth)
      : g_(graph),
        reduces_(graph.schedule.collective.reduces()),
        chunks_(graph.schedule.chunks),
        sets_(graph.schedule.collective.nranks),
        coded_(!graph.schedule.codecs.empty()),
        histories_(graph.schedule.codecs),
        memory_(static_cast<size_t>(graph.places())) {
    result_.facts.resize(g_.steps.size());
    load_inputs();
    size_t wires = 0;
    for (const auto& fifo : g_.fifos) {
      const int32_t slots = std::min(fifo_depth, fifo.messages());
      wires_.push_back({wires, slots});
      wires += static_cast<size_t>(slots) * static_cast<size_t>(fifo.most_chunks);
    }
    on_wire_.resize(wires);
  }

  SymbolicResult run(const std::vector<int32_t>& order) {
    for (const int32_t step : order) perform(step);
    check_outputs();
    if (coded_) check_histories();
    return std::move(result_);
  }

 private:
  struct Wire {
    size_t first = 0;  // index of its values in on_wire_
    int32_t slots = 0;
  };

  void load_inputs() {
    const Schedule& s = g_.schedule;
    for (int r = 0; r < s.collective.nranks; r++)
      for (int i = 0; i < g_.input_chunks(r); i++) {
        const int32_t id = s.collective.start(r, i, s.chunks).id;
        memory_[static_cast<size_t>(g_.place(r, Buffer::kInput, i))] = {
            id, Contributions::only(r), true, coded_ ? histories_.input(r, id) : History{}};
      }
  }

  Value& at(int rank, const Operand& operand, int c) {
    return memory_[static_cast<size_t>(
        g_.place(ScheduleGraph::memory_owner(rank, operand), operand.buffer, operand.index + c))];
  }

  // The values of a message in flight.
  Value* wire(int32_t fifo, int32_t message) {
    const Wire& w = wires_[static_cast<size_t>(fifo)];
    return &on_wire_[w.first +
                     static_cast<size_t>(message % w.slots) *
                         static_cast<size_t>(g_.fifos[static_cast<size_t>(fifo)].most_chunks)];
  }

  void assign(Value& place, const Value& value) {
    sets_.retain(value.set);
    sets_.release(place.set);
    place = value;
  }

  void perform(int32_t number) {
    const auto n = static_cast<size_t>(number);
    const Step& step = *g_.steps[n];
    if (step.count == 0 || step.from.empty()) return;
    const int rank = g_.lanes[static_cast<size_t>(g_.step_lane[n])].rank;
    const auto operand = static_cast<size_t>(g_.first_operand[n]);
    const auto count = static_cast<size_t>(step.count);
    if (values_.size() < count) values_.resize(count);
    sources_.clear();
    for (size_t i = 0; i < step.from.size(); i++)
      take(number, rank, step, i, g_.operand_fifo[operand + i], g_.operand_message[operand + i]);
    settle(number, step);
    if (coded_) remember(number, step);
    for (size_t i = 0; i < step.to.size(); i++) {
      const size_t k = operand + step.from.size() + i;
      const bool peer = step.to[i].kind == Operand::Kind::kPeer;
      Value* out = peer ? wire(g_.operand_fifo[k], g_.operand_message[k]) : nullptr;
      for (size_t c = 0; c < count; c++) {
        Value& place = peer ? out[c] : at(rank, step.to[i], static_cast<int>(c));
        assign(place, values_[c]);
        if (coded_) place.history = written(step, step.to[i], c);
      }
    }
    for (size_t c = 0; c < count; c++) sets_.release(values_[c].set);
    if (sets_.bytes() > kMostSetBytes)
      fail(ncclInvalidUsage, "{}: too many different sums are on their way to prove it",
           describe(g_.id(number)));
  }

  // Reads source `i` of a step. The first source becomes the result; others are added to it.
  void take(int32_t number, int rank, const Step& step, size_t i, int32_t fifo, int32_t message) {
    const Operand& from = step.from[i];
    const auto count = static_cast<size_t>(step.count);
    Value* arrived = fifo >= 0 ? wire(fifo, message) : nullptr;
    size_t raw = 0;
    for (size_t c = 0; c < count; c++) {
      const Value& v = arrived != nullptr ? arrived[c] : at(rank, from, static_cast<int>(c));
      if (v.id < 0)
        fail(ncclInvalidUsage, "{} reads {}, which holds nothing yet", describe(g_.id(number)),
             describe(from.buffer, from.index + static_cast<int>(c)));
      raw += v.raw ? 1 : 0;
      if (coded_) sources_.push_back(read(from, v.history));
      if (i == 0) {
        values_[c] = v;
        sets_.retain(v.set);
      } else {
        combine(number, c, v);
      }
    }
    if (raw == count) {
      result_.facts[static_cast<size_t>(number)].raw_sources |= uint64_t{1} << i;
    } else if (raw != 0 && reduces_) {
      fail(ncclInvalidUsage,
           "{}: source {} holds inputs as given beside chunks that are not; one step takes only "
           "one kind",
           g_.describe_chunk(number, 0), i);
    }
    // A message belongs to its receiver alone, so sums grow in place.
    if (arrived != nullptr)
      for (size_t c = 0; c < count; c++) {
        sets_.release(arrived[c].set);
        arrived[c].set = -1;
      }
  }

  // What a step gets from a source: as it came over the wire, or as a coded message would bring it.
  History read(const Operand& from, const History& history) {
    return from.kind == Operand::Kind::kPeer || from.codec == 0
               ? history
               : histories_.coded(history, from.codec);
  }

  // Sets the histories of a step's result. `sources_` has those of all chunks, source by source.
  void remember(int32_t number, const Step& step) {
    const auto count = static_cast<size_t>(step.count);
    int32_t& passes = result_.facts[static_cast<size_t>(number)].passes;
    for (size_t c = 0; c < count; c++) {
      History& history = values_[c].history;
      history = step.from.size() == 1 ? sources_[c] : histories_.sum(sources_, c, count);
      passes = std::max(passes, histories_.passes(history));
    }
    if (histories_.bytes() > kMostSetBytes)
      fail(ncclInvalidUsage, "{}: too many different histories to prove it",
           describe(g_.id(number)));
  }

  // What a destination gets of a step's result.
  History written(const Step& step, const Operand& to, size_t c) {
    const History& history = values_[c].history;
    const bool passed_on = step.from.size() == 1 && step.from[0].codec == to.codec;
    if (to.codec == 0) return {history.node, false};
    return passed_on ? history : histories_.coded(history, to.codec);
  }

  // All ranks' outputs of a piece must have one history.
  void check_histories() {
    const Collective& c = g_.schedule.collective;
    std::unordered_map<int64_t, std::pair<int32_t, int>> first;  // per goal: the node, and a rank
    for (int r = 0; r < c.nranks; r++)
      for (int i = 0; i < g_.output_chunks(r); i++) {
        const ChunkGoal goal = c.goal(r, i, g_.schedule.chunks);
        const History history =
            memory_[static_cast<size_t>(g_.place(r, Buffer::kOutput, i))].history;
        result_.passes = std::max(result_.passes, histories_.passes(history));
        const bool own = !reduces_ && goal.contributor == r && histories_.is_input(history);
        if (own) continue;
        const int64_t key = int64_t{goal.id} << 32 | static_cast<uint32_t>(goal.contributor);
        const auto [it, added] = first.try_emplace(key, history.node, r);
        if (it->second.first != history.node)
          fail(ncclInvalidUsage,
               "rank {} {} may differ from that of rank {}: it was summed or encoded in another "
               "way",
               r, describe(Buffer::kOutput, i), it->second.second);
      }
  }

  void combine(int32_t number, size_t c, const Value& other) {
    Value& value = values_[c];
    if (value.id != other.id)
      fail(ncclInvalidUsage, "{} reduces piece {} with piece {}, which are different data",
           g_.describe_chunk(number, static_cast<int>(c)), value.id, other.id);
    const int32_t sum = sets_.add(value.set, other.set);
    if (sum < 0)
      fail(ncclInvalidUsage, "{} counts the contribution of rank {} to piece {} twice",
           g_.describe_chunk(number, static_cast<int>(c)), sets_.first_common(value.set, other.set),
           value.id);
    value.set = sum;
  }

  // Sets the facts of a step's result, before it is written.
  void settle(int32_t number, const Step& step) {
    StepFacts& facts = result_.facts[static_cast<size_t>(number)];
    const auto count = static_cast<size_t>(step.count);
    facts.piece = values_[0].id;
    check_uniform(step);
    size_t complete = 0;
    for (size_t c = 0; c < count; c++) {
      values_[c].raw = false;
      complete += values_[c].set == sets_.everyone() ? 1 : 0;
    }
    const bool sums = reduces_ && step.from.size() > 1;
    facts.completes = sums && complete == count;
    if (sums && complete != 0 && complete != count)
      fail(ncclInvalidUsage,
           "{}: completes some of its chunks only; one step completes all or none",
           g_.describe_chunk(number, 0));
  }

  void check_uniform(const Step& step) {
    if (chunks_ == 1 || result_.uniform_only) return;
    const auto differs = [&](const Operand& operand, int c, int piece) {
      return operand.kind != Operand::Kind::kPeer && operand.buffer != Buffer::kScratch &&
             (operand.index + c) % chunks_ != piece;
    };
    const int first = values_[0].id % chunks_;
    for (int c = 0; c < step.count; c++) {
      const int piece = c == 0 ? first : values_[static_cast<size_t>(c)].id % chunks_;
      bool uniform = c > 0 && (first + c) % chunks_ != piece;
      for (const Operand& operand : step.from) uniform |= differs(operand, c, piece);
      for (const Operand& operand : step.to) uniform |= differs(operand, c, piece);
      result_.uniform_only |= uniform;
    }
  }

  void check_outputs() {
    const Schedule& s = g_.schedule;
    for (int r = 0; r < s.collective.nranks; r++) {
      for (int i = 0; i < g_.output_chunks(r); i++) {
        const ChunkGoal goal = s.collective.goal(r, i, s.chunks);
        const Value& v = memory_[static_cast<size_t>(g_.place(r, Buffer::kOutput, i))];
        const bool sum = goal.contributor == ChunkGoal::kEveryone;
        const int32_t want = sum ? sets_.everyone() : Contributions::only(goal.contributor);
        if (v.id == goal.id && v.set == want) continue;
        const std::string where = fmt::format("rank {} {}", r, describe(Buffer::kOutput, i));
        if (v.id < 0) fail(ncclInvalidUsage, "{} is never written", where);
        if (v.id != goal.id)
          fail(ncclInvalidUsage, "{} ends with piece {}, it should hold piece {}", where, v.id,
               goal.id);
        fail(ncclInvalidUsage, "{} ends with the wrong contributions: rank {} is {}", where,
             sets_.first_difference(v.set, want), sum ? "missing" : "missing or too many");
      }
    }
  }

  const ScheduleGraph& g_;
  const bool reduces_;
  const int chunks_;
  Contributions sets_;
  const bool coded_;
  Histories histories_;
  std::vector<History> sources_;
  std::vector<Value> memory_, on_wire_, values_;
  std::vector<Wire> wires_;
  SymbolicResult result_;
};

}  // namespace

SymbolicResult execute_symbolically(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                                    int fifo_depth) {
  return Execution(graph, fifo_depth).run(order);
}

}  // namespace weft
