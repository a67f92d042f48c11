// The trade between latency and bandwidth, in the terms of k-synchronous schedules (SCCL). A
// schedule has steps. Within a step no rank passes on data that it received in that step. A step
// lasts some rounds. In a round the slowest link carries one chunk, faster links proportionally
// more.
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

// For all_gather, reduce_scatter, broadcast and reduce on machines whose GPUs have separate links.
// If paths share a link (switches, NICs), throws Error(ncclInvalidArgument). Every point has more
// steps and fewer rounds per chunk than the one before. The last one is as fast as the links allow,
// if the options allow enough steps and chunks. The search is a heuristic: it may miss a schedule
// that exists.
std::vector<ParetoPoint> latency_points(const Machine& machine, const Collective& collective,
                                        const PointOptions& options = {});

}  // namespace weft
