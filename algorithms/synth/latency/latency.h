// The latency engine: all_gather, reduce_scatter, all_reduce, broadcast and reduce, planned for one
// size. If latency dominates, plans have few hops and no detours. If bandwidth dominates, they
// cross slow links once. In between the numbers decide: see race.h. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct LatencyOptions {
  // How executors divide chunks: a schedule runs once per slice.
  double slice_bytes = 65536;
  int most_slices = 256;
  int fifo_depth = 8;
  // More chunks only if they save this part of the time.
  double worthwhile = 0.0002;
  // Limits the time of synthesis: more chunks are tried until this many pieces have been considered
  // for a hop, per pair of ranks. A million of them take about 40 ms.
  int64_t effort = 3500;
};

struct LatencyPlan {
  Routing routing;
  double predicted_us = 0;
};

// `bytes` is the size of the whole array. Returns the plans worth simulating, the best by the
// engine's own prediction first; never empty. Weave them with WeaveOptions{.fuse = false, .ports =
// true}; the prediction assumes that. Throws Error(ncclInvalidArgument) for other collectives.
// Throws with the reason if some rank cannot reach another.
std::vector<LatencyPlan> latency_plans(const Machine& machine, const Collective& collective,
                                       double bytes, const LatencyOptions& options = {});

}  // namespace weft
