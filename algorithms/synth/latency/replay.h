// The time of a timetable when executors keep its order, not its exact times. Every GPU sends over
// each of its links in the order of the timetable. It sends as soon as it has the data and the FIFO
// has room, slice after slice. All other links serve in order of arrival.
#pragma once

#include <vector>

#include "algorithms/synth/latency/race.h"

namespace weft {

// Pieces have `piece_bytes` per slice. Only the first slices are simulated; the rest come at the
// pace of the last of them.
double replay_us(const HopGraph& graph, const std::vector<int32_t>& origin, const Timetable& table,
                 double piece_bytes, double slices, int fifo_depth);

}  // namespace weft
