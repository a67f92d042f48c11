// verify() is the only way to make a VerifiedSchedule. Executors run nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

// What the proof learned about a step. Executors need it.
struct StepFacts {
  int32_t piece = 0;  // the piece of data (ChunkGoal::id) in its first chunk
  uint64_t raw_sources =
      0;  // bit i: source i is the caller's unmodified input (a pre-multiplier applies here)
  int32_t passes = 0;      // the most encodings that a contribution to the result has passed
  bool completes = false;  // the result has every rank's contribution (an average divides here)
};

class ScheduleGraph;

// Immutable; copies share their content. Any thread may call it.
class VerifiedSchedule {
 public:
  const Schedule& schedule() const { return *schedule_; }
  // The numbering that the proof used.
  const ScheduleGraph& graph() const { return *graph_; }
  bool in_place() const { return in_place_; }
  int fifo_depth() const { return fifo_depth_; }
  // True when a step stores a piece in a chunk with another number. Then all chunks must have the
  // same length.
  bool uniform_only() const { return uniform_only_; }
  // The most lossy encodings that a contribution passes on its way to an output. 0: results are as
  // exact as sums of the call's type can be.
  int passes() const { return passes_; }
  const StepFacts& facts(int rank, int lane, int step) const {
    const auto r = static_cast<size_t>(rank), l = static_cast<size_t>(lane);
    return facts_[first_step_[first_lane_[r] + l] + static_cast<size_t>(step)];
  }

  // All steps, by the numbers of graph(), in an order in which they can run.
  const std::vector<int32_t>& order() const { return order_; }

  // Per step of a rank, lane after lane: receivers may read the sent data in place, because no step
  // overwrites it before they have read it. Computed on demand: it costs more than the rest of the
  // proof, and only the rank that runs a step needs it.
  std::vector<bool> lendable(int rank) const;
  // The least number of messages that FIFOs must hold for this schedule.
  int least_fifo_depth() const;

 private:
  friend VerifiedSchedule verify(std::shared_ptr<const Schedule>, bool, int);
  VerifiedSchedule() = default;
  std::shared_ptr<const Schedule> schedule_;
  std::shared_ptr<const ScheduleGraph> graph_;
  bool in_place_ = false;
  int fifo_depth_ = 0;
  bool uniform_only_ = false;
  int passes_ = 0;
  std::vector<StepFacts> facts_;
  std::vector<size_t> first_lane_, first_step_;  // per rank, per lane of all ranks
  std::vector<int32_t> order_;
};

// Proves by symbolic execution that the schedule implements its collective, in place or out of
// place. Every output chunk of every rank ends with exactly the right contributions. Sends and
// receives match. No step waits for ever when a FIFO holds `fifo_depth` messages. No two unordered
// steps touch the same chunk unless both only read. If the schedule has codecs, all ranks' outputs
// of a piece also have one history of sums and encodings, so their bits are equal. Only a rank
// whose own input the piece is may keep it exact, if the collective does not reduce. Otherwise
// throws Error(ncclInvalidUsage) that names rank, lane, step and chunk. If only the depth is too
// small, it names the least that works.
VerifiedSchedule verify(Schedule schedule, bool in_place, int fifo_depth = 2);
// The same without a copy, for a schedule that several proofs share. Nobody may change it.
VerifiedSchedule verify(std::shared_ptr<const Schedule> schedule, bool in_place,
                        int fifo_depth = 2);

}  // namespace weft
