// In which order the steps of a schedule can run when FIFOs hold so many messages, and how many
// they must hold at least.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

// All steps, each after everything it waits for. Throws when some never run, naming one that holds
// up the others, and the least depth that would do.
std::vector<int32_t> run_order(const ScheduleGraph& graph, int fifo_depth);

// The least number of messages every FIFO must hold so that all steps run; 0 when no number is
// enough. What runs with some depth runs with every greater one.
int least_fifo_depth(const ScheduleGraph& graph);

}  // namespace weft
