// Symbolic execution of a schedule: the content of every chunk, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"
#include "src/schedule/verify.h"

namespace weft {

struct SymbolicResult {
  std::vector<StepFacts> facts;  // per step
  bool uniform_only = false;     // see VerifiedSchedule
  int passes = 0;                // see VerifiedSchedule
};

// Runs the steps in `order`, an order that works with FIFOs of `fifo_depth` messages. Throws on a
// read of an empty chunk, a contribution counted twice, or an output that the collective does not
// ask. If the schedule has codecs, throws also if two ranks' outputs of a piece may differ.
SymbolicResult execute_symbolically(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                                    int fifo_depth);

}  // namespace weft
