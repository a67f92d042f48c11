// The trade between latency and bandwidth, in the terms of k-synchronous schedules (SCCL): a
// schedule has steps; within a step nobody passes on what the step itself brought; a step lasts
// some rounds, and in a round the narrowest link carries one chunk, others as many as they are
// wider.
#pragma once

#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct ParetoPoint {
  int steps = 0, rounds = 0, chunks = 0;  // rounds of all steps; chunks per block
  Routing routing;                        // begin_us is the number of the step
};

struct PointOptions {
  int most_steps = 4;
  int most_chunks = 6;
};

// For all_gather, reduce_scatter and broadcast or reduce on machines whose GPUs are joined by links
// of their own; where several ways share a link (switches, NICs) throws Error(ncclInvalidArgument).
// Every point has more steps and fewer rounds per chunk than the one before; the last one is as
// fast as the links allow, if so many steps and chunks are enough. The search is a heuristic: what
// it returns is a schedule, what it does not find may exist.
std::vector<ParetoPoint> latency_points(const Machine& machine, const Collective& collective,
                                        const PointOptions& options = {});

}  // namespace weft
