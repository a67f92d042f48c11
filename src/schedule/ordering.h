// Happens-before between the steps of a schedule: finds races, and which sent data may be read in
// place.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

// Throws when two unordered steps touch the same chunk and one of them writes, or when a step
// reaches into the memory of a rank that may not be in the call. `order` is one in which all steps
// can run.
void check_ordering(const ScheduleGraph& graph, const std::vector<int32_t>& order);

// Per step of a rank (its lanes one after the other): every overwriting of what the step sends
// comes after all receivers have taken it, so that they may read it where it lies.
std::vector<bool> lendable_steps(const ScheduleGraph& graph, const std::vector<int32_t>& order,
                                 int rank);

}  // namespace weft
