// Which schedules kernels can run whose FIFOs are rings in host memory (cuda/ring_kernel.cuh).
// Known without a GPU, so that planning can ask before anything runs.
#pragma once

#include <string>

#include "src/schedule/schedule.h"

namespace weft {

// Why no kernel can run it, for arrays of any size; empty: one can.
std::string unfit_for_host_fifos(const Schedule& schedule);

}  // namespace weft
