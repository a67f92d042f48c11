// For one rank at a time: the earliest step of each of its lanes that comes after any given step of
// the whole schedule (one backward pass over an execution order). Every pair of accesses that could
// conflict is looked up in such a table.
#include "src/schedule/ordering.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

struct Access {
  int32_t step = 0;
  bool write = false;
};

class Ordering {
 public:
  Ordering(const ScheduleGraph& graph, SymbolicResult& result) : g_(graph), result_(result) {
    dependents_.resize(g_.steps.size());
    for (size_t n = 0; n < g_.steps.size(); n++) {
      const StepId at = g_.id(static_cast<int32_t>(n));
      for (const Dependency& d : g_.steps[n]->after)
        dependents_[static_cast<size_t>(g_.step_number(at.rank, d.lane, d.step))].push_back(
            static_cast<int32_t>(n));
    }
    const auto nranks = static_cast<size_t>(g_.schedule.collective.nranks);
    tables_.resize(nranks);
    accesses_.resize(nranks);
    for (size_t r = 0; r < nranks; r++)
      accesses_[r].resize(static_cast<size_t>(g_.locations(static_cast<int>(r))));
    collect();
  }

  void check() {
    if (remote_) check_presence();
    for (int r = 0; r < g_.schedule.collective.nranks; r++) {
      for (const auto& accesses : accesses_[static_cast<size_t>(r)]) check_races(accesses);
      mark_lendable(r);
      // Only schedules that reach into peers' memory ask about other ranks again.
      if (!remote_) tables_[static_cast<size_t>(r)] = {};
    }
  }

 private:
  void collect() {
    for (size_t n = 0; n < g_.steps.size(); n++) {
      const Step& step = *g_.steps[n];
      const int rank = g_.id(static_cast<int32_t>(n)).rank;
      for (const Operand& from : step.from)
        add(rank, from, step.count, {static_cast<int32_t>(n), false});
      for (const Operand& to : step.to)
        if (!stays(rank, step, to)) add(rank, to, step.count, {static_cast<int32_t>(n), true});
    }
  }

  // A copy of a chunk to where it lies already, as in-place calls make of a copy from input to
  // output, writes nothing. (Where data is reduced it may: a pre-multiplier applies on the way.)
  bool stays(int rank, const Step& step, const Operand& to) const {
    return !g_.schedule.collective.reduces() && step.from.size() == 1 &&
           step.from[0].kind == Operand::Kind::kLocal && to.kind == Operand::Kind::kLocal &&
           g_.location(rank, to.buffer, to.index) ==
               g_.location(rank, step.from[0].buffer, step.from[0].index);
  }

  void add(int rank, const Operand& operand, int count, Access access) {
    if (operand.kind == Operand::Kind::kPeer) return;
    remote_ = remote_ || operand.kind == Operand::Kind::kRemote;
    const int owner = ScheduleGraph::memory_owner(rank, operand);
    for (int c = 0; c < count; c++)
      accesses_[static_cast<size_t>(owner)]
               [static_cast<size_t>(g_.location(owner, operand.buffer, operand.index + c))]
                   .push_back(access);
  }

  int32_t lane_of(int32_t step) const { return g_.step_lane[static_cast<size_t>(step)]; }

  // True when `a` is complete before `b` begins.
  bool before(int32_t a, int32_t b) {
    if (lane_of(a) == lane_of(b)) return a < b;
    const auto rank = static_cast<size_t>(g_.lanes[static_cast<size_t>(lane_of(b))].rank);
    const int32_t first = g_.first_lane[rank];
    const auto width = static_cast<size_t>(g_.first_lane[rank + 1] - first);
    if (tables_[rank].empty()) build_table(tables_[rank], first, width);
    return tables_[rank]
                  [static_cast<size_t>(a) * width + static_cast<size_t>(lane_of(b) - first)] <= b;
  }

  void build_table(std::vector<int32_t>& table, int32_t first, size_t width) {
    table.assign(g_.steps.size() * width, kNever);
    // `next` comes after `n`: so does everything after `next`.
    const auto follow = [&](int32_t n, int32_t next) {
      int32_t* mine = &table[static_cast<size_t>(n) * width];
      const int32_t* theirs = &table[static_cast<size_t>(next) * width];
      for (size_t l = 0; l < width; l++) mine[l] = std::min(mine[l], theirs[l]);
      const int32_t lane = lane_of(next) - first;
      if (lane >= 0 && lane < static_cast<int32_t>(width)) mine[lane] = std::min(mine[lane], next);
    };
    for (auto it = result_.order.rbegin(); it != result_.order.rend(); ++it) {
      const int32_t n = *it;
      const auto& lane = g_.lanes[static_cast<size_t>(lane_of(n))];
      if (n + 1 < lane.first_step + lane.size) follow(n, n + 1);
      for (const int32_t d : dependents_[static_cast<size_t>(n)]) follow(n, d);
      for_receivers(n, [&](int32_t receiver) { follow(n, receiver); });
    }
  }

  template <typename Visit>
  void for_receivers(int32_t n, Visit visit) const {
    const size_t operands = g_.steps[static_cast<size_t>(n)]->to.size();
    const auto first = static_cast<size_t>(result_.first_match[static_cast<size_t>(n)]);
    for (size_t i = 0; i < operands; i++)
      if (result_.matches[first + i] >= 0) visit(result_.matches[first + i]);
  }

  void check_races(const std::vector<Access>& accesses) {
    for (size_t i = 0; i < accesses.size(); i++) {
      for (size_t j = i + 1; j < accesses.size(); j++) {
        const Access &a = accesses[i], &b = accesses[j];
        if (a.step == b.step || (!a.write && !b.write)) continue;
        if (before(a.step, b.step) || before(b.step, a.step)) continue;
        fail(ncclInvalidUsage, "{} and {} touch the same chunk and nothing orders them",
             describe(g_.id(a.step)), describe(g_.id(b.step)));
      }
    }
  }

  // A rank's memory may be touched by others only while the rank is inside the call: after one of
  // its steps, and before the last step of one of its lanes.
  void check_presence() {
    for (size_t n = 0; n < g_.steps.size(); n++) {
      const Step& step = *g_.steps[n];
      const auto number = static_cast<int32_t>(n);
      const auto check = [&](const Operand& operand) {
        if (operand.kind != Operand::Kind::kRemote) return;
        bool entered = false, stays = false;
        const auto owner = static_cast<size_t>(operand.owner);
        for (int32_t l = g_.first_lane[owner]; l < g_.first_lane[owner + 1]; l++) {
          const auto& lane = g_.lanes[static_cast<size_t>(l)];
          if (lane.size == 0) continue;
          entered = entered || before(lane.first_step, number);
          stays = stays || before(number, lane.first_step + lane.size - 1);
        }
        if (!entered || !stays)
          fail(ncclInvalidUsage, "{} touches memory of rank {}, which may {} the call {}",
               describe(g_.id(number)), operand.owner, entered ? "have left" : "not have entered",
               entered ? "already" : "yet");
      };
      for (const Operand& from : step.from) check(from);
      for (const Operand& to : step.to) check(to);
    }
  }

  void mark_lendable(int rank) {
    const auto r = static_cast<size_t>(rank);
    for (int32_t l = g_.first_lane[r]; l < g_.first_lane[r + 1]; l++) {
      const auto& lane = g_.lanes[static_cast<size_t>(l)];
      for (int32_t n = lane.first_step; n < lane.first_step + lane.size; n++)
        result_.facts[static_cast<size_t>(n)].lendable = lendable(rank, n);
    }
  }

  bool lendable(int rank, int32_t n) {
    const Step& step = *g_.steps[static_cast<size_t>(n)];
    // What would be lent: the local destination if there is one, else the only, local source.
    const Operand* lent = nullptr;
    bool sends = false;
    for (const Operand& to : step.to) {
      if (to.kind == Operand::Kind::kPeer) sends = true;
      if (to.kind == Operand::Kind::kLocal && lent == nullptr) lent = &to;
    }
    if (!sends || step.count == 0) return false;
    if (lent == nullptr && step.from.size() == 1 && step.from[0].kind == Operand::Kind::kLocal)
      lent = &step.from[0];
    if (lent == nullptr) return false;
    for (int c = 0; c < step.count; c++) {
      const auto location = static_cast<size_t>(g_.location(rank, lent->buffer, lent->index + c));
      for (const Access& access : accesses_[static_cast<size_t>(rank)][location])
        if (access.write && access.step != n && !before(access.step, n) &&
            !after_all_receivers(n, access.step))
          return false;
    }
    return true;
  }

  bool after_all_receivers(int32_t n, int32_t write) {
    bool all = true;
    for_receivers(n, [&](int32_t receiver) { all = all && before(receiver, write); });
    return all;
  }

  const ScheduleGraph& g_;
  SymbolicResult& result_;
  std::vector<std::vector<int32_t>> dependents_;
  std::vector<std::vector<std::vector<Access>>> accesses_;  // per rank and location, by anyone
  std::vector<std::vector<int32_t>> tables_;                // per rank, made when asked for
  bool remote_ = false;
};

}  // namespace

void check_ordering(const ScheduleGraph& graph, SymbolicResult& result) {
  Ordering(graph, result).check();
}

}  // namespace weft
