// How much data lanes move. Executors deal lanes to workers by it. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

// By lane: chunks that its steps read and write. A message is taken to arrive where its step wants
// it, so a step that only receives moves nothing.
std::vector<uint64_t> lane_weights(const RankSchedule& rank);

// Of the rank whose heaviest lane has the largest share of the rank's work: its weights, the
// largest first. Not of CPU nodes. Empty if no rank moves data.
std::vector<uint64_t> least_even_weights(const Schedule& schedule);

}  // namespace weft
