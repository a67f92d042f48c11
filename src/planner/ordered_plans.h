// Rings and chains that follow the machine, as schedules for a table. Pure functions.
#pragma once

#include <memory>
#include <vector>

#include "src/planner/imported_schedules.h"
#include "src/topology/graph/machine.h"

namespace weft {

// The ranks in the order of a ring: host by host, and neighbours next to each other, so that its
// slowest link is as fast as possible. Never over another GPU where there is a way without.
std::vector<int> ring_order(const Machine& machine);

// Rings in both directions, and a chain for all_reduce, along that order. Proved. Empty with many
// ranks: proofs take too long for init then.
std::vector<std::shared_ptr<const ImportedSchedule>> ordered_schedules(const Machine& machine);

}  // namespace weft
