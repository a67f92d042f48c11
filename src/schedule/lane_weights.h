// How much data lanes move. Executors deal lanes to workers by it. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

// By lane: chunks that its steps read and write. A message is taken to arrive where its step wants
// it, so a step that only receives moves nothing.
std::vector<uint64_t> lane_weights(const RankSchedule& rank);

// Of the rank with the heaviest lane: its weights, the largest first. Not of CPU nodes. Empty if no
// rank moves data.
std::vector<uint64_t> weights_of_heaviest(const Schedule& schedule);

}  // namespace weft
