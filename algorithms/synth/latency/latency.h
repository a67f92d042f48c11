// The latency engine: all_gather, reduce_scatter, all_reduce, broadcast and reduce, planned for one
// size. Where latency counts, few hops and no detour; where bandwidth counts, slow links are
// crossed once. Between them the numbers decide: see race.h. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct LatencyOptions {
  // How executors cut chunks: a schedule runs once per slice.
  double slice_bytes = 65536;
  int most_slices = 256;
  int fifo_depth = 8;
  // More chunks only where they save this part of the time.
  double worthwhile = 0.0002;
  // Limits the time that synthesis takes: more chunks are tried until so many pieces have been
  // considered for a hop, per pair of ranks. A million of them take about 40 ms.
  int64_t effort = 3500;
};

struct LatencyPlan {
  Routing routing;
  double predicted_us = 0;
};

// `bytes` is the size of the whole array. Plans worth simulating, the best one by the engine's own
// prediction first; never empty. To be woven with WeaveOptions{.fuse = false, .ports = true}, which
// is what the prediction is for. Throws Error(ncclInvalidArgument) for other collectives, and with
// the reason for machines on which some rank cannot reach another.
std::vector<LatencyPlan> latency_plans(const Machine& machine, const Collective& collective,
                                       double bytes, const LatencyOptions& options = {});

}  // namespace weft
