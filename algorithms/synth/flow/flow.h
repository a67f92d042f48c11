// The flow engine: collectives in which every piece goes from one rank to one other (alltoall,
// gather, scatter). Chunks take whatever paths even out the links, through other GPUs where that
// helps. Pure functions.
#pragma once

#include <cstdint>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct FlowOptions {
  // Chunks per block are tried from few to many until the busiest link carries at most this much
  // more than it must.
  double loss = 0.005;
  int most_chunks = 24;
  int64_t most_pieces = 8192;   // of all blocks that move, where they have several chunks
  int64_t effort = 30'000'000;  // links looked at
};

// Throws Error(ncclInvalidArgument) for other collectives, and with the reason for machines on
// which some rank cannot reach another.
Routing route_flow(const Machine& machine, const Collective& collective,
                   const FlowOptions& options = {});

// What route_flow() has made, with the same load on every link, but with what is relayed spread
// over as many ranks as possible. Better where many small messages share few narrow links, worse
// elsewhere.
Routing spread_relays(const Machine& machine, const Routing& routing);

}  // namespace weft
