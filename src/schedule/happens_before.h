// Which step always completes before another step begins.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

// Builds its tables on demand. The first, small table has the order from a rank's lanes and
// dependencies. Only if that does not decide, a second table adds the order from messages. It has
// an entry for every step of the schedule and lane of the rank. These tables are for the rank of
// the later step; `home` has one for the earlier step too. So the order between one rank and all
// others costs two large tables, if that rank is `home`. Not thread-safe.
class HappensBefore {
 public:
  // `order`: all steps, each after the steps it waits for. Both must outlive this.
  HappensBefore(const ScheduleGraph& graph, const std::vector<int32_t>& order, int home = -1);

  // True when `a` is complete before `b` begins.
  bool operator()(int32_t a, int32_t b);
  // The same for steps of one rank, by its lanes and dependencies alone. Needs no large table.
  bool in_rank(int32_t a, int32_t b);

  // Frees a rank's tables.
  void forget(int rank);

 private:
  // Per step and lane of the rank: the first step of the lane that comes after the step.
  struct Table {
    int32_t first_step = 0, first_lane = 0;
    size_t width = 0;
    std::vector<int32_t> earliest;
    bool tells(int32_t a, int32_t b, int32_t lane_of_b) const {
      return earliest[static_cast<size_t>(a - first_step) * width +
                      static_cast<size_t>(lane_of_b - first_lane)] <= b;
    }
  };
  int32_t lane_of(int32_t step) const { return g_.step_lane[static_cast<size_t>(step)]; }
  int rank_of(int32_t step) const { return g_.lanes[static_cast<size_t>(lane_of(step))].rank; }
  // True when `a`, a step of `home`, comes before `b`.
  bool leads(int32_t a, int32_t b) const;
  Table& local(int rank);
  size_t entries(int rank, size_t rows) const;
  template <typename Visit>
  void for_next(int32_t step, bool all_ranks, Visit visit) const;
  void build(Table& table, int rank, bool all_ranks) const;
  void build_latest();
  void build_dependents();
  void sort_by_rank();

  const ScheduleGraph& g_;
  const std::vector<int32_t>& order_;
  const int home_;
  std::vector<int32_t> first_dependent_, dependents_;  // steps that name a step in `after`
  std::vector<int32_t> rank_order_;                    // `order`, sorted by rank
  std::vector<Table> local_, global_;                  // per rank
  std::vector<int32_t> latest_;  // per step and lane of `home`: the last step that comes before
};

}  // namespace weft
