// Which schedules can run in kernels with FIFOs in host memory (cuda/kernels/ring_kernel.cuh). The
// check needs no GPU, so planning can ask before anything runs.
#pragma once

#include <string>

#include "src/schedule/schedule.h"

namespace weft {

// Why no kernel can run the schedule, for arrays of any size; empty if one can.
std::string unfit_for_host_fifos(const Schedule& schedule);

}  // namespace weft
