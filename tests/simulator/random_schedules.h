// Correct schedules of random shape: data goes along random spanning trees, one lane per tree.
#pragma once

#include <cstdint>

#include "src/schedule/schedule.h"

namespace weft::test {

// all_gather, reduce_scatter, broadcast or reduce; `chunks` trees per block.
Schedule random_forest(const Collective& collective, int chunks, uint64_t seed);

// One of these four or all_reduce, with random root, chunks and trees. In some of them data passes
// through scratch memory, or lanes wait for other lanes.
Schedule random_schedule(int nranks, uint64_t seed);

}  // namespace weft::test
