// One pass over an execution order per table: backward, or forward for the steps before.
#include "src/schedule/happens_before.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr size_t kMostEntries = size_t{1} << 28;

}  // namespace

HappensBefore::HappensBefore(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                             int home)
    : g_(graph),
      order_(order),
      home_(home),
      local_(graph.schedule.ranks.size()),
      global_(graph.schedule.ranks.size()) {
  build_dependents();
}

// The steps of a rank have consecutive numbers, so its part begins at its first step's number.
void HappensBefore::sort_by_rank() {
  std::vector<int32_t> next(g_.schedule.ranks.size());
  for (size_t r = 0; r < next.size(); r++) next[r] = g_.first_step(static_cast<int>(r));
  rank_order_.resize(order_.size());
  for (const int32_t n : order_)
    rank_order_[static_cast<size_t>(next[static_cast<size_t>(rank_of(n))]++)] = n;
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

HappensBefore::Table& HappensBefore::local(int rank) {
  Table& table = local_[static_cast<size_t>(rank)];
  if (table.width == 0) {
    if (rank_order_.empty()) sort_by_rank();
    build(table, rank, false);
  }
  return table;
}

bool HappensBefore::in_rank(int32_t a, int32_t b) {
  const int32_t lane_a = lane_of(a), lane_b = lane_of(b);
  if (lane_a == lane_b) return a < b;
  return rank_of(a) == rank_of(b) && local(rank_of(b)).tells(a, b, lane_b);
}

bool HappensBefore::operator()(int32_t a, int32_t b) {
  const int32_t lane_a = lane_of(a), lane_b = lane_of(b);
  if (lane_a == lane_b) return a < b;
  const int rank_a = rank_of(a), rank = rank_of(b);
  if (rank_a == rank) {
    const Table& table = local(rank);
    if (table.tells(a, b, lane_b)) return true;
    // If b comes before a, the large table is not needed.
    if (table.tells(b, a, lane_a)) return false;
  }
  Table& table = global_[static_cast<size_t>(rank)];
  if (rank_a == home_ && table.width == 0) {
    if (latest_.empty()) build_latest();
    return leads(a, b);
  }
  if (table.width == 0) build(table, rank, true);
  return table.tells(a, b, lane_b);
}

void HappensBefore::forget(int rank) {
  local_[static_cast<size_t>(rank)] = {};
  global_[static_cast<size_t>(rank)] = {};
}

bool HappensBefore::leads(int32_t a, int32_t b) const {
  const auto h = static_cast<size_t>(home_);
  const auto width = static_cast<size_t>(g_.first_lane[h + 1] - g_.first_lane[h]);
  return latest_[static_cast<size_t>(b) * width +
                 static_cast<size_t>(lane_of(a) - g_.first_lane[h])] >= a;
}

// The size of a table of a rank.
size_t HappensBefore::entries(int rank, size_t rows) const {
  const auto r = static_cast<size_t>(rank);
  const auto width = static_cast<size_t>(g_.first_lane[r + 1] - g_.first_lane[r]);
  if (rows * width > kMostEntries)
    fail(ncclInvalidUsage, "rank {}: {} lanes over {} steps, too many to prove them free of races",
         rank, width, rows);
  return rows * width;
}

// Calls visit for every step that waits for this one. all_ranks: for its messages too.
template <typename Visit>
void HappensBefore::for_next(int32_t n, bool all_ranks, Visit visit) const {
  const auto& lane = g_.lanes[static_cast<size_t>(lane_of(n))];
  if (n + 1 < lane.first_step + lane.size) visit(n + 1);
  for (int32_t d = first_dependent_[static_cast<size_t>(n)];
       d < first_dependent_[static_cast<size_t>(n) + 1]; d++)
    visit(dependents_[static_cast<size_t>(d)]);
  if (!all_ranks) return;
  const size_t destinations = g_.steps[static_cast<size_t>(n)]->to.size();
  for (size_t d = 0; d < destinations; d++)
    if (const int32_t receiver = g_.receiver(n, d); receiver >= 0) visit(receiver);
}

void HappensBefore::build(Table& table, int rank, bool all_ranks) const {
  const auto r = static_cast<size_t>(rank);
  table.first_lane = g_.first_lane[r];
  table.width = static_cast<size_t>(g_.first_lane[r + 1] - table.first_lane);
  const int32_t begin = all_ranks ? 0 : g_.first_step(rank);
  const int32_t end = all_ranks ? static_cast<int32_t>(g_.steps.size()) : g_.first_step(rank + 1);
  table.first_step = begin;
  table.earliest.assign(entries(rank, static_cast<size_t>(end - begin)), kNever);
  const auto row = [&](int32_t n) {
    return &table.earliest[static_cast<size_t>(n - begin) * table.width];
  };
  const std::vector<int32_t>& order = all_ranks ? order_ : rank_order_;
  for (auto i = static_cast<size_t>(end); i-- > static_cast<size_t>(begin);) {
    int32_t* mine = row(order[i]);
    // `next` comes after, and so does everything after `next`.
    for_next(order[i], all_ranks, [&](int32_t next) {
      const int32_t* theirs = row(next);
      for (size_t l = 0; l < table.width; l++) mine[l] = std::min(mine[l], theirs[l]);
      const int32_t lane = lane_of(next) - table.first_lane;
      if (lane >= 0 && lane < static_cast<int32_t>(table.width))
        mine[lane] = std::min(mine[lane], next);
    });
  }
}

void HappensBefore::build_latest() {
  const auto h = static_cast<size_t>(home_);
  const int32_t first = g_.first_lane[h], width = g_.first_lane[h + 1] - first;
  latest_.assign(entries(home_, g_.steps.size()), -1);
  const auto row = [&](int32_t n) {
    return &latest_[static_cast<size_t>(n) * static_cast<size_t>(width)];
  };
  for (const int32_t n : order_) {
    const int32_t* mine = row(n);
    const int32_t lane = lane_of(n) - first;
    for_next(n, true, [&](int32_t next) {
      int32_t* theirs = row(next);
      for (int32_t l = 0; l < width; l++) theirs[l] = std::max(theirs[l], mine[l]);
      if (lane >= 0 && lane < width) theirs[lane] = std::max(theirs[lane], n);
    });
  }
}

}  // namespace weft
