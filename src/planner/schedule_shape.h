// The work in a schedule, counted once: steps, messages and chunks, and the longest chain of
// messages. The cost model predicts from these numbers alone, for any size, without another pass
// over the steps.
#pragma once

#include <span>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/schedule/schedule_graph.h"

namespace weft {

// Work of one rank, per slice.
struct RankShape {
  double steps = 0;
  double messages = 0;      // sent and received through memory
  double net_messages = 0;  // sent and received between hosts
  double net_chunks = 0;    // chunks in those messages
  // Chunks written without a reduction: all, and those left when large messages are lent instead of
  // copied.
  double copied = 0, copied_lending = 0;
  double reduced = 0;  // chunks read for reductions
  double touched = 0;  // chunks read or written in any rank's memory
  double passed = 0;   // chunks sent or received; GPUs cost by this and `touched`
};

struct ScheduleShape {
  int chunks = 1;    // per block
  int lanes = 0;     // most of a rank
  int channels = 0;  // most between two ranks
  int hops = 0;      // messages on the longest chain
  int net_hops = 0;  // of these, between hosts
  std::vector<RankShape> ranks;
};

// `hosts` has the host of every rank; empty: all share one. Throws Error if the schedule is
// ill-formed or gets stuck.
ScheduleShape shape_of(const Schedule& schedule, std::span<const int> hosts = {});
// For callers that have the schedule's graph already.
ScheduleShape shape_of(const ScheduleGraph& graph, std::span<const int> hosts = {});

}  // namespace weft
