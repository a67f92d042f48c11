// How long a timetable takes when it is kept in order rather than to the microsecond: what
// executors do. Every GPU sends over each of its links in the order of the timetable, as soon as it
// has the data and the FIFO has room, slice after slice; all other links serve what comes first.
#pragma once

#include <vector>

#include "algorithms/synth/latency/race.h"

namespace weft {

// Pieces of `piece_bytes` per slice. Only the first slices are followed: the rest come at the pace
// of the last of them.
double replay_us(const HopGraph& graph, const std::vector<int32_t>& origin, const Timetable& table,
                 double piece_bytes, double slices, int fifo_depth);

}  // namespace weft
