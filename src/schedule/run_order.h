// An order in which the steps of a schedule can run with FIFOs of a given depth, and the least
// depth that works.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

// All steps, each after everything it waits for. Throws when some steps never run. The error names
// a step that blocks the others, and the least depth that works.
std::vector<int32_t> run_order(const ScheduleGraph& graph, int fifo_depth);

// The least number of messages that every FIFO must hold so that all steps run; 0 if no depth
// works. A schedule that runs with some depth runs with every greater depth.
int least_fifo_depth(const ScheduleGraph& graph);

}  // namespace weft
