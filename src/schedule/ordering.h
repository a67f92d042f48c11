// Happens-before between the steps of a schedule: finds races, and finds sent data that receivers
// may read in place.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

// Throws when two unordered steps touch the same chunk and one of them writes. Throws too when a
// step accesses the memory of a rank that may not be in the call. `order` is an order in which all
// steps can run.
void check_ordering(const ScheduleGraph& graph, const std::vector<int32_t>& order);

// Per step of a rank, lane after lane: whether receivers may read the sent data in place. True if
// every step that overwrites the data comes after all receivers have taken it.
std::vector<bool> lendable_steps(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                                 int rank);

}  // namespace weft
