// A step is two events, so that steps of different lanes overlap. It begins when dependencies,
// messages and room are there, and it ends when results are written. Sources are read at one of the
// two, chosen at random.
#include "tests/schedule/random_order_run.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "src/base/error.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// The content of a chunk: its piece. For every rank, how often its contribution is included and how
// often it was multiplied.
struct Value {
  int32_t piece = -1;
  std::vector<int> contributions, multiplied;
  int divided = 0;
  bool operator==(const Value&) const = default;
};

struct Place {
  int rank = 0, chunk = 0;
};

struct Message {
  std::vector<Value> values;
  std::optional<Place> lent;  // where to read the data instead
  StraightPlace straight;     // where the sender wrote the data
};

struct Held {  // a step that has begun
  bool active = false, late = false;
  std::vector<std::vector<Value>> sources;
};

struct Runner {  // a lane
  int rank = 0, lane = 0;
  size_t operand = 0;  // number of the next step's first operand among those of the rank
  size_t position = 0;
  Held held;
};

class Simulation {
 public:
  Simulation(const VerifiedSchedule& verified, const SimulationOptions& options)
      : verified_(verified), s_(verified.schedule()), options_(options), random_(options.seed) {
    const Collective& c = s_.collective;
    for (int r = 0; r < c.nranks + s_.cpu_nodes; r++) {
      lay_out(r);
      if (options.lend) lendable_.push_back(verified.lendable(r));
      size_t operand = 0;
      for (size_t l = 0; l < s_.ranks[static_cast<size_t>(r)].lanes.size(); l++) {
        runners_.push_back({r, static_cast<int>(l), operand, 0, {}});
        for (const Step& step : lane(runners_.back()).steps)
          operand += step.from.size() + step.to.size();
      }
    }
    for (size_t i = 0; i < runners_.size(); i++) priority_.push_back(random_.next());
    favours_ = random_.below(2) == 0;
    slots_ = random_.below(2) == 0;
  }

  std::string run() {
    while (event()) {
      if (!wrong_.empty()) return wrong_;
    }
    for (const Runner& runner : runners_)
      if (runner.position < lane(runner).steps.size())
        return fmt::format("deadlock: rank {} lane {} stops at step {}", runner.rank, runner.lane,
                           runner.position);
    for (const auto& [key, fifo] : fifos_)
      if (!fifo.empty()) return "a message is left over";
    return check_outputs();
  }

 private:
  // Addresses in chunks. In place, the buffers overlap as the collective says.
  void lay_out(int rank) {
    const Collective& c = s_.collective;
    const int inputs = c.input_blocks(rank) * s_.chunks,
              outputs = c.output_blocks(rank) * s_.chunks;
    const bool both = verified_.in_place() && inputs > 0 && outputs > 0;
    const Collective::Overlap overlap = c.overlap(rank, s_.chunks);
    const int input = both ? overlap.input_at : 0, output = both ? overlap.output_at : inputs;
    const int scratch = std::max(input + inputs, output + outputs);
    bases_.push_back({input, output, scratch});
    memory_.emplace_back(
        static_cast<size_t>(scratch + s_.ranks[static_cast<size_t>(rank)].scratch_chunks));
    for (int i = 0; i < inputs; i++) {
      Value& v = memory_.back()[static_cast<size_t>(input + i)];
      v.piece = c.start(rank, i, s_.chunks).id;
      v.contributions.assign(static_cast<size_t>(c.nranks), 0);
      v.multiplied = v.contributions;
      v.contributions[static_cast<size_t>(rank)] = 1;
    }
  }

  const Lane& lane(const Runner& runner) const {
    return s_.ranks[static_cast<size_t>(runner.rank)].lanes[static_cast<size_t>(runner.lane)];
  }
  Place place(int rank, const Operand& operand, int c) const {
    const int owner = operand.kind == Operand::Kind::kRemote ? operand.owner : rank;
    return {owner, bases_[static_cast<size_t>(owner)][static_cast<size_t>(operand.buffer)] +
                       operand.index + c};
  }
  Value& at(const Place& where) {
    return memory_[static_cast<size_t>(where.rank)][static_cast<size_t>(where.chunk)];
  }
  std::deque<Message>& fifo(int from, int to, int channel) { return fifos_[{from, to, channel}]; }
  std::deque<Message>& incoming(int rank, const Operand& o) {
    return fifo(o.index, rank, o.channel);
  }
  std::deque<Message>& outgoing(int rank, const Operand& o) {
    return fifo(rank, o.index, o.channel);
  }

  // Lets one lane begin or end a step. Returns false if no lane can.
  bool event() {
    std::vector<Runner*> able;
    Runner* first = nullptr;
    for (size_t i = 0; i < runners_.size(); i++) {
      Runner& runner = runners_[i];
      if (!runner.held.active && !can_begin(runner)) continue;
      able.push_back(&runner);
      if (first == nullptr ||
          priority_[i] < priority_[static_cast<size_t>(first - runners_.data())])
        first = &runner;
    }
    if (able.empty()) return false;
    // In half of the runs some lanes run ahead as far as they can.
    Runner& chosen = favours_ && random_.below(8) != 0 ? *first : *random_.pick(able);
    if (chosen.held.active) {
      end(chosen);
    } else {
      begin(chosen);
    }
    return true;
  }

  bool can_begin(const Runner& runner) {
    const Lane& mine = lane(runner);
    if (runner.position >= mine.steps.size()) return false;
    const Step& step = mine.steps[runner.position];
    for (const Dependency& d : step.after)
      for (const Runner& other : runners_)
        if (other.rank == runner.rank && other.lane == d.lane &&
            other.position <= static_cast<size_t>(d.step))
          return false;
    for (const Operand& from : step.from)
      if (from.kind == Operand::Kind::kPeer && incoming(runner.rank, from).empty()) return false;
    for (size_t i = 0; i < step.to.size(); i++)
      if (step.to[i].kind == Operand::Kind::kPeer && !has_room(runner, step, i)) return false;
    return true;
  }

  // An executor may need no slot for a straight message. Then senders run ahead further.
  bool has_room(const Runner& runner, const Step& step, size_t i) {
    const auto& messages = outgoing(runner.rank, step.to[i]);
    auto used = static_cast<int>(messages.size());
    if (!slots_) {
      if (straight(runner, step.from.size() + i).index >= 0) return true;
      used = static_cast<int>(std::count_if(messages.begin(), messages.end(),
                                            [](const Message& m) { return m.straight.index < 0; }));
    }
    return used < options_.fifo_depth;
  }

  // Where the message of an operand of a lane's next step goes, as this rank sees it.
  StraightPlace straight(const Runner& runner, size_t operand) const {
    if (options_.straight == nullptr) return {};
    return (*options_.straight)[static_cast<size_t>(runner.rank)][runner.operand + operand];
  }

  // Chunk `c` of a straight message in the receiver's memory.
  Value& target(int receiver, const StraightPlace& where, int c) {
    return at(place(receiver, Operand::local(where.buffer, where.index), c));
  }

  void begin(Runner& runner) {
    runner.held.active = true;
    runner.held.late = random_.below(2) == 0;
    const Step& step = lane(runner).steps[runner.position];
    runner.held.sources.assign(step.from.size(), {});
    for (const Operand& o : step.from) check_present(o);
    for (const Operand& o : step.to) check_present(o);
    // From now on the sender may write at any time.
    for (size_t i = 0; i < step.to.size(); i++)
      if (const StraightPlace to = straight(runner, step.from.size() + i); to.index >= 0)
        for (int c = 0; c < step.count; c++) target(step.to[i].index, to, c) = {};
    for (size_t i = 0; i < step.from.size(); i++)
      if (step.from[i].kind == Operand::Kind::kPeer &&
          !(incoming(runner.rank, step.from[i]).front().straight == straight(runner, i)))
        return fail_at(runner, "expects the message elsewhere");
    if (runner.held.late) return;
    for (size_t i = 0; i < step.from.size(); i++)
      for (int c = 0; c < step.count; c++)
        runner.held.sources[i].push_back(read(runner, step.from[i], c));
  }

  // Goes chunk by chunk, as executors do.
  void end(Runner& runner) {
    const Step& step = lane(runner).steps[runner.position];
    const StepFacts& facts =
        verified_.facts(runner.rank, runner.lane, static_cast<int>(runner.position));
    std::vector<Value> results;
    for (int c = 0; c < step.count && !step.from.empty(); c++) {
      Value result;
      for (size_t i = 0; i < step.from.size(); i++) {
        Value source = runner.held.late ? read(runner, step.from[i], c)
                                        : runner.held.sources[i][static_cast<size_t>(c)];
        if (source.piece < 0) return fail_at(runner, "reads a chunk that holds nothing");
        if (s_.collective.reduces() && ((facts.raw_sources >> i) & 1u) != 0)
          for (size_t r = 0; r < source.multiplied.size(); r++)
            source.multiplied[r] += source.contributions[r];
        if (i == 0) {
          result = std::move(source);
          continue;
        }
        if (result.piece != source.piece) return fail_at(runner, "reduces different pieces");
        for (size_t r = 0; r < result.contributions.size(); r++) {
          result.contributions[r] += source.contributions[r];
          result.multiplied[r] += source.multiplied[r];
        }
        result.divided += source.divided;
      }
      if (facts.completes) result.divided++;
      for (const Operand& to : step.to)
        if (to.kind != Operand::Kind::kPeer && !arrived(runner, step, to))
          at(place(runner.rank, to, c)) = result;
      results.push_back(std::move(result));
    }
    for (const Operand& from : step.from)
      if (from.kind == Operand::Kind::kPeer) incoming(runner.rank, from).pop_front();
    for (size_t i = 0; i < step.to.size(); i++)
      if (step.to[i].kind == Operand::Kind::kPeer) send(runner, step, i, results, facts);
    for (const Operand& o : step.from) check_present(o);
    for (const Operand& o : step.to) check_present(o);
    runner.held = {};
    runner.operand += step.from.size() + step.to.size();
    runner.position++;
  }

  void send(const Runner& runner, const Step& step, size_t i, const std::vector<Value>& results,
            const StepFacts& facts) {
    Message message{results, lent(runner, step, facts), straight(runner, step.from.size() + i)};
    if (message.straight.index >= 0) {
      for (size_t c = 0; c < results.size(); c++)
        target(step.to[i].index, message.straight, static_cast<int>(c)) = results[c];
      message.values.clear();
    }
    outgoing(runner.rank, step.to[i]).push_back(std::move(message));
  }

  // Whether the sender has written this destination already.
  bool arrived(const Runner& runner, const Step& step, const Operand& to) const {
    if (step.from.size() != 1 || step.from[0].kind != Operand::Kind::kPeer) return false;
    const StraightPlace here = straight(runner, 0);
    return here.index >= 0 && to == Operand::local(here.buffer, here.index);
  }

  std::optional<Place> lent(const Runner& runner, const Step& step, const StepFacts& facts) const {
    if (!options_.lend) return std::nullopt;
    const auto rank = static_cast<size_t>(runner.rank);
    size_t number = runner.position;  // its number among the steps of the rank
    for (int l = 0; l < runner.lane; l++)
      number += s_.ranks[rank].lanes[static_cast<size_t>(l)].steps.size();
    if (!lendable_[rank][number]) return std::nullopt;
    for (const Operand& to : step.to)
      if (to.kind == Operand::Kind::kLocal) return place(runner.rank, to, 0);
    // The source does not include the multiplication that the step does.
    if (s_.collective.reduces() && facts.raw_sources != 0) return std::nullopt;
    return place(runner.rank, step.from[0], 0);
  }

  Value read(const Runner& runner, const Operand& from, int c) {
    if (from.kind != Operand::Kind::kPeer) return at(place(runner.rank, from, c));
    const Message& message = incoming(runner.rank, from).front();
    if (message.lent) return at({message.lent->rank, message.lent->chunk + c});
    if (message.straight.index >= 0) return target(runner.rank, message.straight, c);
    if (static_cast<size_t>(c) >= message.values.size()) return {};
    return message.values[static_cast<size_t>(c)];
  }

  // Other ranks may touch a rank's memory only while that rank is in the call.
  void check_present(const Operand& operand) {
    if (operand.kind != Operand::Kind::kRemote || !wrong_.empty()) return;
    bool entered = false, all_done = true;
    for (const Runner& runner : runners_) {
      if (runner.rank != operand.owner) continue;
      entered = entered || runner.position > 0 || runner.held.active;
      all_done = all_done && runner.position == lane(runner).steps.size();
    }
    if (!entered || all_done) wrong_ = fmt::format("rank {} is not in the call", operand.owner);
  }

  void fail_at(const Runner& runner, const char* what) {
    wrong_ =
        fmt::format("rank {} lane {} step {} {}", runner.rank, runner.lane, runner.position, what);
  }

  std::string check_outputs() {
    const Collective& c = s_.collective;
    for (int r = 0; r < c.nranks; r++) {
      for (int i = 0; i < c.output_blocks(r) * s_.chunks; i++) {
        const ChunkGoal goal = c.goal(r, i, s_.chunks);
        Value want;
        want.piece = goal.id;
        want.contributions.assign(static_cast<size_t>(c.nranks),
                                  goal.contributor == ChunkGoal::kEveryone ? 1 : 0);
        if (goal.contributor >= 0) want.contributions[static_cast<size_t>(goal.contributor)] = 1;
        want.multiplied.assign(want.contributions.size(), c.reduces() ? 1 : 0);
        want.divided = c.reduces() && c.nranks > 1 ? 1 : 0;
        if (!(at(place(r, Operand::output(i), 0)) == want))
          return fmt::format("rank {} output chunk {} is wrong", r, i);
      }
    }
    return {};
  }

  const VerifiedSchedule& verified_;
  const Schedule& s_;
  const SimulationOptions options_;
  std::vector<std::vector<bool>> lendable_;
  Random random_;
  std::vector<std::array<int, 3>> bases_;
  std::vector<std::vector<Value>> memory_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> fifos_;
  std::vector<Runner> runners_;
  std::vector<uint64_t> priority_;
  bool favours_ = false;
  bool slots_ = false;  // straight messages take slots too
  std::string wrong_;
};

}  // namespace

std::string simulate(const VerifiedSchedule& verified, const SimulationOptions& options) {
  return Simulation(verified, options).run();
}

}  // namespace weft::test
