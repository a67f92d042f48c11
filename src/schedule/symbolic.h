// Symbolic execution of a schedule: what every chunk would hold, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"
#include "src/schedule/verify.h"

namespace weft {

struct SymbolicResult {
  std::vector<StepFacts> facts;  // per step
  bool uniform_only = false;     // see VerifiedSchedule
};

// Runs the steps in an order in which they can run with FIFOs of `fifo_depth` messages. Throws on a
// read of nothing, a contribution counted twice, or an output that is not what the collective asks.
SymbolicResult execute_symbolically(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                                    int fifo_depth);

}  // namespace weft
