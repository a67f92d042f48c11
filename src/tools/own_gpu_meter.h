// Times small calls of ranks with a GPU each, in CUDA graphs, for `weft calibrate`.
#pragma once

#include <span>
#include <vector>

#include "src/planner/fit_own_gpus.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Ranks are threads, each on its device: teams of the first 2, 3, 4, 6 and 8 of `devices`, as far
// as there are so many. A device may be named several times: its ranks then share it. `machine`
// has the devices in CUDA's order. Throws Error.
std::vector<OwnGpuTimes> time_own_gpus(std::span<const int> devices, const Machine& machine);

}  // namespace weft
