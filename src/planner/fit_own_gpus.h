// Rates of GPUs that ranks do not share, from small calls in CUDA graphs. A pure function; for
// `weft calibrate`.
#pragma once

#include <span>

#include "src/planner/cost_model.h"

namespace weft {

// Calls of a few bytes, with one rank per GPU.
struct OwnGpuTimes {
  int ranks = 0;
  double ring_us = 0;     // an all_gather as a ring of lanes: ranks - 1 hops
  double packets_us = 0;  // an all_reduce by one round of packets
  double way_us = 0;      // what the machine says a link between neighbours takes
};

// Fills in call_us, step_us, message_us, hop_us (packets) and lane_start_us, as gpu_rates() reads
// them. What teams take longer than smaller ones is their hops; the rest of a hop is divided
// between its step and its two messages as in gpu_rates.cc. A call is what packets to nobody would
// take, and lanes begin later by what a ring without hops would take more. With one team only
// hop_us is fitted. Throws Error if times cannot be explained: a larger team is faster.
Rates fit_own_gpus(std::span<const OwnGpuTimes> teams, const Rates& start);

}  // namespace weft
