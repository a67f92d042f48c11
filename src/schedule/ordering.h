// Happens-before between the steps of a schedule: finds races, and which sent data may be read in
// place.
#pragma once

#include "src/schedule/schedule_graph.h"
#include "src/schedule/symbolic.h"

namespace weft {

// Throws when two unordered steps of a rank touch the same chunk and one of them writes. Fills in
// `lendable` of the facts: every overwriting of a sent chunk comes after all receivers have taken
// it.
void check_ordering(const ScheduleGraph& graph, SymbolicResult& result);

}  // namespace weft
