// Symbolic execution of a schedule: what every chunk would hold, message by message.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"
#include "src/schedule/verify.h"

namespace weft {

struct SymbolicResult {
  std::vector<int32_t> order;        // all steps in an order in which they can run
  std::vector<int32_t> first_match;  // per step, index into `matches`
  std::vector<int32_t> matches;  // per destination operand: the step that receives it, -1 if local
  std::vector<StepFacts> facts;  // all but `lendable`
  bool uniform_only = false;     // see VerifiedSchedule
};

// Runs every lane with FIFOs of `fifo_depth` messages. Throws on a deadlock, an unmatched message,
// a read of nothing, a contribution counted twice, or an output that is not what the collective
// asks.
SymbolicResult execute_symbolically(const ScheduleGraph& graph, int fifo_depth);

}  // namespace weft
