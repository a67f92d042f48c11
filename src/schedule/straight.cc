// Asks for every message whether its place is the message's own from S to R. One function decides
// for both ends.
#include "src/schedule/straight.h"

#include <algorithm>
#include <optional>

#include "src/schedule/accesses.h"
#include "src/schedule/happens_before.h"

namespace weft {
namespace {

// Limits on the cost: passes over all steps, and the entries of HappensBefore's two large tables.
constexpr size_t kMostStraightSteps = size_t{1} << 18;
constexpr size_t kMostStraightEntries = size_t{1} << 23;

// The answer is the same for all ranks, so that both ends of every message agree.
bool is_cheap(const ScheduleGraph& g) {
  size_t lanes = 0;
  for (const RankSchedule& rank : g.schedule.ranks) lanes = std::max(lanes, rank.lanes.size());
  // With peer memory access, every rank may need its tables.
  const size_t tables = g.has_remote() ? g.schedule.ranks.size() : 1;
  return g.steps.size() <= kMostStraightSteps &&
         g.steps.size() * lanes * tables <= kMostStraightEntries;
}

class StraightMessages {
 public:
  StraightMessages(const VerifiedSchedule& verified, int rank)
      : verified_(verified),
        g_(verified.graph()),
        before_(g_, verified.order(), rank),
        accesses_(g_.schedule.ranks.size()) {}

  // The place of the message of an operand, a number over all steps. None for memory.
  StraightPlace of_operand(size_t operand) {
    const int32_t fifo = g_.operand_fifo[operand];
    if (fifo < 0) return {};
    const auto message = static_cast<size_t>(g_.fifos[static_cast<size_t>(fifo)].first_message +
                                             g_.operand_message[operand]);
    return of_message(g_.senders[message], g_.receivers[message]);
  }

 private:
  StraightPlace of_message(int32_t sender, int32_t receiver) {
    const Step& step = *g_.steps[static_cast<size_t>(receiver)];
    const StepId id = g_.id(receiver);
    if (step.count == 0 || step.from.size() != 1 || step.from[0].codec != 0) return {};
    if (std::any_of(step.to.begin(), step.to.end(), [](const Operand& o) { return o.codec != 0; }))
      return {};
    // A step that multiplies must run over the data. No message holds an unmodified input, so this
    // never happens today. A step with one source never divides: only sums complete.
    const StepFacts& facts = verified_.facts(id.rank, id.lane, id.step);
    if (facts.raw_sources != 0 || facts.completes) return {};
    const auto to = std::find_if(step.to.begin(), step.to.end(), [](const Operand& o) {
      return o.kind == Operand::Kind::kLocal && o.buffer != Buffer::kInput;
    });
    if (to == step.to.end() || written_twice(step, id.rank, *to)) return {};
    for (int c = 0; c < step.count; c++)
      if (!is_free(id.rank, g_.place(id.rank, to->buffer, to->index + c), sender, receiver))
        return {};
    return {to->buffer, to->index};
  }

  // Whether another destination of the step is the same place.
  bool written_twice(const Step& step, int rank, const Operand& place) const {
    const auto at = [&](const Operand& o, int c) {
      return g_.place(ScheduleGraph::memory_owner(rank, o), o.buffer, o.index + c);
    };
    for (const Operand& other : step.to) {
      if (&other == &place || other.kind == Operand::Kind::kPeer) continue;
      // Operands of a step overlap chunk by chunk or not at all.
      for (int c = 0; c < step.count; c++)
        if (at(other, c) == at(place, c)) return true;
    }
    return false;
  }

  // Whether every access to a place is before the sender's step, or after the receiver's. The
  // accesses of a lane are in order. So only its first one that is not before the sender counts.
  bool is_free(int owner, int32_t place, int32_t sender, int32_t receiver) {
    const Accesses& accesses = accesses_of(owner);
    const Access *a = accesses.begin(accesses.at(place)), *last = accesses.end(accesses.at(place));
    while (a != last) {
      const int32_t lane = g_.step_lane[static_cast<size_t>(a->step)];
      const auto& steps = g_.lanes[static_cast<size_t>(lane)];
      const Access* end = std::partition_point(
          a, last, [&](const Access& other) { return other.step < steps.first_step + steps.size; });
      // In most lanes all are after the receiver, which costs nothing to know.
      if (!after(receiver, a->step)) {
        a = std::partition_point(a, end, [&](const Access& other) {
          return !after(receiver, other.step) && before_(other.step, sender);
        });
        if (a != end && !after(receiver, a->step)) return false;
      }
      a = end;
    }
    return true;
  }

  // Whether a step is the receiver's, or comes after it. The order within its rank must tell: the
  // order by messages would need a large table for every receiver.
  bool after(int32_t receiver, int32_t step) {
    if (step == receiver || before_.in_rank(receiver, step)) return true;
    return g_.id(step).rank != g_.id(receiver).rank && before_(receiver, step);
  }

  // With peer memory access, any rank may touch the owner's memory.
  const Accesses& accesses_of(int owner) {
    std::optional<Accesses>& known = accesses_[static_cast<size_t>(owner)];
    const bool all = g_.has_remote();
    if (!known)
      known.emplace(g_, all ? 0 : g_.first_step(owner),
                    all ? static_cast<int32_t>(g_.steps.size()) : g_.first_step(owner + 1),
                    g_.first_place(owner), g_.first_place(owner + 1));
    return *known;
  }

  const VerifiedSchedule& verified_;
  const ScheduleGraph& g_;
  HappensBefore before_;
  std::vector<std::optional<Accesses>> accesses_;  // per owner of memory
};

}  // namespace

std::vector<StraightPlace> straight_places(const VerifiedSchedule& verified, int rank) {
  const ScheduleGraph& g = verified.graph();
  const auto first_operand = [&](int32_t step) {
    return static_cast<size_t>(step) < g.steps.size()
               ? static_cast<size_t>(g.first_operand[static_cast<size_t>(step)])
               : g.operand_fifo.size();
  };
  const size_t first = first_operand(g.first_step(rank));
  std::vector<StraightPlace> places(first_operand(g.first_step(rank + 1)) - first);
  if (!is_cheap(g)) return places;
  StraightMessages messages(verified, rank);
  for (size_t i = 0; i < places.size(); i++) places[i] = messages.of_operand(first + i);
  return places;
}

}  // namespace weft
