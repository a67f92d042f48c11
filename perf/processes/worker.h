// One rank of process_perf.
#pragma once

#include "perf/processes/board.h"
#include "perf/processes/settings.h"

namespace weft::perf {

// Measures all rows together with the other ranks. Rank 0 writes the results to the board. Throws
// std::runtime_error.
void measure(const Settings& settings, Mode mode, int rank, Board& board);

}  // namespace weft::perf
