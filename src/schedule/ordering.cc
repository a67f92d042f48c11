// For one rank at a time: the earliest step of each of its lanes that comes after any given step of
// the whole schedule (one backward pass over an execution order), then every pair of accesses that
// could conflict is looked up in that table.
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

class RankOrdering {
 public:
  RankOrdering(const ScheduleGraph& graph, SymbolicResult& result,
               const std::vector<std::vector<int32_t>>& dependents, int rank)
      : g_(graph), result_(result), dependents_(dependents), rank_(rank) {
    first_lane_ = g_.first_lane[static_cast<size_t>(rank)];
    width_ = static_cast<size_t>(g_.first_lane[static_cast<size_t>(rank) + 1] - first_lane_);
  }

  void check() {
    collect();
    for (const auto& accesses : accesses_) check_races(accesses);
    mark_lendable();
  }

 private:
  void collect() {
    accesses_.resize(static_cast<size_t>(g_.locations(rank_)));
    for (size_t l = 0; l < width_; l++) {
      const auto& lane = g_.lanes[static_cast<size_t>(first_lane_) + l];
      for (int32_t n = lane.first_step; n < lane.first_step + lane.size; n++) {
        const Step& step = *g_.steps[static_cast<size_t>(n)];
        for (const Operand& from : step.from) add(from, step.count, {n, false});
        for (const Operand& to : step.to) add(to, step.count, {n, true});
      }
    }
  }

  void add(const Operand& operand, int count, Access access) {
    if (operand.kind == Operand::Kind::kPeer) return;
    for (int c = 0; c < count; c++)
      accesses_[static_cast<size_t>(g_.location(rank_, operand.buffer, operand.index + c))]
          .push_back(access);
  }

  int32_t lane_of(int32_t step) const { return g_.step_lane[static_cast<size_t>(step)]; }

  // True when `a` (any step of the schedule) is complete before `b` (a step of this rank) begins.
  bool before(int32_t a, int32_t b) {
    if (lane_of(a) == lane_of(b)) return a < b;
    build_table();
    return table_[static_cast<size_t>(a) * width_ +
                  static_cast<size_t>(lane_of(b) - first_lane_)] <= b;
  }

  void build_table() {
    if (!table_.empty()) return;
    table_.assign(g_.steps.size() * width_, kNever);
    for (auto it = result_.order.rbegin(); it != result_.order.rend(); ++it) {
      const int32_t n = *it;
      const auto& lane = g_.lanes[static_cast<size_t>(lane_of(n))];
      if (n + 1 < lane.first_step + lane.size) follow(n, n + 1);
      for (const int32_t d : dependents_[static_cast<size_t>(n)]) follow(n, d);
      const size_t operands = g_.steps[static_cast<size_t>(n)]->to.size();
      for (size_t i = 0; i < operands; i++) {
        const int32_t receiver =
            result_.matches[static_cast<size_t>(result_.first_match[static_cast<size_t>(n)]) + i];
        if (receiver >= 0) follow(n, receiver);
      }
    }
  }

  // `next` comes after `n`: so does everything after `next`.
  void follow(int32_t n, int32_t next) {
    int32_t* mine = &table_[static_cast<size_t>(n) * width_];
    const int32_t* theirs = &table_[static_cast<size_t>(next) * width_];
    for (size_t l = 0; l < width_; l++) mine[l] = std::min(mine[l], theirs[l]);
    const int32_t lane = lane_of(next) - first_lane_;
    if (lane >= 0 && lane < static_cast<int32_t>(width_)) mine[lane] = std::min(mine[lane], next);
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

  void mark_lendable() {
    for (size_t l = 0; l < width_; l++) {
      const auto& lane = g_.lanes[static_cast<size_t>(first_lane_) + l];
      for (int32_t n = lane.first_step; n < lane.first_step + lane.size; n++)
        result_.facts[static_cast<size_t>(n)].lendable = lendable(n);
    }
  }

  bool lendable(int32_t n) {
    const Step& step = *g_.steps[static_cast<size_t>(n)];
    // What would be lent: the local destination if there is one, else the only, local source.
    const Operand* lent = nullptr;
    bool sends = false;
    for (const Operand& to : step.to) {
      if (to.kind == Operand::Kind::kPeer) sends = true;
      if (to.kind == Operand::Kind::kLocal && lent == nullptr) lent = &to;
    }
    if (!sends) return false;
    if (lent == nullptr && step.from.size() == 1 && step.from[0].kind == Operand::Kind::kLocal)
      lent = &step.from[0];
    if (lent == nullptr) return false;
    for (int c = 0; c < step.count; c++)
      for (const Access& access :
           accesses_[static_cast<size_t>(g_.location(rank_, lent->buffer, lent->index + c))])
        if (access.write && access.step != n && !before(access.step, n) &&
            !after_all_receivers(n, access.step))
          return false;
    return true;
  }

  bool after_all_receivers(int32_t n, int32_t write) {
    const size_t operands = g_.steps[static_cast<size_t>(n)]->to.size();
    for (size_t i = 0; i < operands; i++) {
      const int32_t receiver =
          result_.matches[static_cast<size_t>(result_.first_match[static_cast<size_t>(n)]) + i];
      if (receiver >= 0 && !before(receiver, write)) return false;
    }
    return true;
  }

  const ScheduleGraph& g_;
  SymbolicResult& result_;
  const std::vector<std::vector<int32_t>>& dependents_;
  const int rank_;
  int32_t first_lane_ = 0;
  size_t width_ = 0;
  std::vector<std::vector<Access>> accesses_;
  std::vector<int32_t> table_;
};

}  // namespace

void check_ordering(const ScheduleGraph& graph, SymbolicResult& result) {
  std::vector<std::vector<int32_t>> dependents(graph.steps.size());
  for (size_t n = 0; n < graph.steps.size(); n++) {
    const StepId at = graph.id(static_cast<int32_t>(n));
    for (const Dependency& d : graph.steps[n]->after)
      dependents[static_cast<size_t>(graph.step_number(at.rank, d.lane, d.step))].push_back(
          static_cast<int32_t>(n));
  }
  for (int r = 0; r < graph.schedule.collective.nranks; r++)
    RankOrdering(graph, result, dependents, r).check();
}

}  // namespace weft
