// One backward pass over an execution order per table.
#include "src/schedule/happens_before.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr size_t kMostEntries = size_t{1} << 28;

}  // namespace

HappensBefore::HappensBefore(const ScheduleGraph& graph, const std::vector<int32_t>& order)
    : g_(graph),
      order_(order),
      local_(graph.schedule.ranks.size()),
      global_(graph.schedule.ranks.size()) {
  build_dependents();
}

// The steps of a rank have consecutive numbers, so its part begins at its first step's number.
void HappensBefore::sort_by_rank() {
  std::vector<int32_t> next(g_.schedule.ranks.size());
  for (size_t r = 0; r < next.size(); r++) {
    const auto lane = static_cast<size_t>(g_.first_lane[r]);
    next[r] =
        lane < g_.lanes.size() ? g_.lanes[lane].first_step : static_cast<int32_t>(g_.steps.size());
  }
  rank_order_.resize(order_.size());
  for (const int32_t n : order_)
    rank_order_[static_cast<size_t>(
        next[static_cast<size_t>(g_.lanes[static_cast<size_t>(lane_of(n))].rank)]++)] = n;
}

void HappensBefore::build_dependents() {
  first_dependent_.assign(g_.steps.size() + 1, 0);
  const auto for_each = [&](auto visit) {
    for (const auto& lane : g_.lanes)
      for (int32_t n = lane.first_step; n < lane.first_step + lane.size; n++)
        for (const Dependency& d : g_.steps[static_cast<size_t>(n)]->after)
          visit(static_cast<size_t>(g_.step_number(lane.rank, d.lane, d.step)), n);
  };
  for_each([&](size_t on, int32_t) { first_dependent_[on + 1]++; });
  for (size_t n = 1; n < first_dependent_.size(); n++)
    first_dependent_[n] += first_dependent_[n - 1];
  dependents_.resize(static_cast<size_t>(first_dependent_.back()));
  std::vector<int32_t> next = first_dependent_;
  for_each([&](size_t on, int32_t n) { dependents_[static_cast<size_t>(next[on]++)] = n; });
}

bool HappensBefore::operator()(int32_t a, int32_t b) {
  const int32_t lane_a = lane_of(a), lane_b = lane_of(b);
  if (lane_a == lane_b) return a < b;
  const int32_t rank = g_.lanes[static_cast<size_t>(lane_b)].rank;
  const auto r = static_cast<size_t>(rank);
  if (g_.lanes[static_cast<size_t>(lane_a)].rank == rank) {
    if (rank_order_.empty()) sort_by_rank();
    if (local_[r].width == 0) build(local_[r], rank, false);
    if (local_[r].tells(a, b, lane_b)) return true;
    // If b comes before a, the large table is not needed.
    if (local_[r].tells(b, a, lane_a)) return false;
  }
  if (global_[r].width == 0) build(global_[r], rank, true);
  return global_[r].tells(a, b, lane_b);
}

void HappensBefore::forget(int rank) {
  local_[static_cast<size_t>(rank)] = {};
  global_[static_cast<size_t>(rank)] = {};
}

void HappensBefore::build(Table& table, int rank, bool all_ranks) const {
  const auto r = static_cast<size_t>(rank);
  table.first_lane = g_.first_lane[r];
  table.width = static_cast<size_t>(g_.first_lane[r + 1] - table.first_lane);
  const auto first_step_of = [&](size_t lane) {
    return lane < g_.lanes.size() ? g_.lanes[lane].first_step
                                  : static_cast<int32_t>(g_.steps.size());
  };
  const int32_t begin = first_step_of(static_cast<size_t>(g_.first_lane[r]));
  const int32_t end = first_step_of(static_cast<size_t>(g_.first_lane[r + 1]));
  table.first_step = all_ranks ? 0 : begin;
  const size_t rows =
      all_ranks ? g_.steps.size() : static_cast<size_t>(end) - static_cast<size_t>(begin);
  if (rows * table.width > kMostEntries)
    fail(ncclInvalidUsage, "rank {}: {} lanes over {} steps, too many to prove them free of races",
         rank, table.width, rows);
  table.earliest.assign(rows * table.width, kNever);
  // `next` comes after `n`, and so does everything after `next`.
  const auto follow = [&](int32_t n, int32_t next) {
    int32_t* mine = &table.earliest[static_cast<size_t>(n - table.first_step) * table.width];
    const int32_t* theirs =
        &table.earliest[static_cast<size_t>(next - table.first_step) * table.width];
    for (size_t l = 0; l < table.width; l++) mine[l] = std::min(mine[l], theirs[l]);
    const int32_t lane = lane_of(next) - table.first_lane;
    if (lane >= 0 && lane < static_cast<int32_t>(table.width))
      mine[lane] = std::min(mine[lane], next);
  };
  const std::vector<int32_t>& order = all_ranks ? order_ : rank_order_;
  for (size_t i = all_ranks ? order.size() : static_cast<size_t>(end);
       i-- > (all_ranks ? 0 : static_cast<size_t>(begin));) {
    const int32_t n = order[i];
    const auto& lane = g_.lanes[static_cast<size_t>(lane_of(n))];
    if (n + 1 < lane.first_step + lane.size) follow(n, n + 1);
    for (int32_t d = first_dependent_[static_cast<size_t>(n)];
         d < first_dependent_[static_cast<size_t>(n) + 1]; d++)
      follow(n, dependents_[static_cast<size_t>(d)]);
    if (!all_ranks) continue;
    const size_t destinations = g_.steps[static_cast<size_t>(n)]->to.size();
    for (size_t d = 0; d < destinations; d++)
      if (const int32_t receiver = g_.receiver(n, d); receiver >= 0) follow(n, receiver);
  }
}

}  // namespace weft
