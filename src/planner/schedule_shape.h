// What a schedule asks of those who run it, counted once: sums of steps, messages and chunks, and
// how many messages follow each other. The cost model predicts from these numbers alone, for any
// size, without running through the steps again.
#pragma once

#include <span>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/schedule/schedule_graph.h"

namespace weft {

// Of one rank, per slice.
struct RankShape {
  double steps = 0;
  double messages = 0;      // sent and received through memory
  double net_messages = 0;  // sent and received between hosts
  double net_chunks = 0;    // the chunks in those
  // Chunks written where nothing is reduced: all of them, and those that stay when the data of
  // large messages is lent instead of copied.
  double copied = 0, copied_lending = 0;
  double reduced = 0;  // chunks read where several are reduced
  double touched = 0;  // chunks read or written in memory, whosever, and
  double passed = 0;   // chunks sent or received: what GPUs count by
};

struct ScheduleShape {
  int chunks = 1;    // per block
  int lanes = 0;     // of a rank at most
  int channels = 0;  // between two ranks at most
  int hops = 0;      // messages one after the other, on the longest chain
  int net_hops = 0;  // of those, between hosts
  std::vector<RankShape> ranks;
};

// `hosts` has the host of every rank; empty: all share one. Throws Error where the schedule is
// ill-formed or gets stuck.
ScheduleShape shape_of(const Schedule& schedule, std::span<const int> hosts = {});
// The same for those who have the schedule's steps by number already.
ScheduleShape shape_of(const ScheduleGraph& graph, std::span<const int> hosts = {});

}  // namespace weft
