// One rank of process_perf.
#pragma once

#include "perf/processes/board.h"
#include "perf/processes/settings.h"

namespace weft::perf {

// Measures all rows together with the other ranks; rank 0 writes the results onto the board.
// Throws std::runtime_error.
void measure(const Settings& settings, Mode mode, int rank, Board& board);

}  // namespace weft::perf
