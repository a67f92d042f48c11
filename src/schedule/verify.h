// verify(): the only way to a VerifiedSchedule, and so the only way to run anything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

// What the proof found out about a step, needed to run it.
struct StepFacts {
  int32_t piece = 0;  // the piece of data (ChunkGoal::id) its first chunk is
  uint64_t raw_sources =
      0;  // bit i: source i is the caller's input as given (a pre-multiplier applies here)
  bool completes = false;  // the result holds every rank's contribution (an average divides here)
};

class ScheduleGraph;

// Immutable; copies share what they hold. Any thread may ask.
class VerifiedSchedule {
 public:
  const Schedule& schedule() const { return *schedule_; }
  // The numbering that the proof ran on.
  const ScheduleGraph& graph() const { return *graph_; }
  bool in_place() const { return in_place_; }
  int fifo_depth() const { return fifo_depth_; }
  // True when a step keeps a piece in a chunk of another number, so that chunks must all be of one
  // length.
  bool uniform_only() const { return uniform_only_; }
  const StepFacts& facts(int rank, int lane, int step) const {
    const auto r = static_cast<size_t>(rank), l = static_cast<size_t>(lane);
    return facts_[first_step_[first_lane_[r] + l] + static_cast<size_t>(step)];
  }

  // Found out when asked for, since it costs more than the rest of the proof and only the rank that
  // runs a step needs it. Per step of a rank, its lanes one after the other: receivers may read
  // what it sends where it lies, because nobody overwrites it before they have.
  std::vector<bool> lendable(int rank) const;
  // How many messages FIFOs must hold at least for this schedule.
  int least_fifo_depth() const;

 private:
  friend VerifiedSchedule verify(Schedule, bool, int);
  VerifiedSchedule() = default;
  std::shared_ptr<const Schedule> schedule_;
  std::shared_ptr<const ScheduleGraph> graph_;
  bool in_place_ = false;
  int fifo_depth_ = 0;
  bool uniform_only_ = false;
  std::vector<StepFacts> facts_;
  std::vector<size_t> first_lane_, first_step_;  // per rank, per lane of all ranks
  std::vector<int32_t> order_;                   // all steps as they can run
};

// Proves by symbolic execution that the schedule does what its collective asks, in place or out of
// place: every output chunk of every rank ends with exactly the right contributions; sends and
// receives match; nothing waits for ever when a FIFO holds `fifo_depth` messages; no two unordered
// steps touch the same chunk unless both only read. Throws Error(ncclInvalidUsage) naming rank,
// lane, step and chunk otherwise, and the least depth that works where only the depth is too small.
VerifiedSchedule verify(Schedule schedule, bool in_place, int fifo_depth = 2);

}  // namespace weft
