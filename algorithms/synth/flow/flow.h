// The flow engine, for collectives in which every piece goes from one rank to one other (alltoall,
// gather, scatter). Chunks take the paths that even out the links, through other GPUs if that
// helps. Pure functions.
#pragma once

#include <cstdint>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct FlowOptions {
  // Tries ever more chunks per block, until the busiest link carries at most this much more than
  // the least possible.
  double loss = 0.005;
  int most_chunks = 24;
  int64_t most_pieces = 8192;   // of all blocks that move, if they have several chunks
  int64_t effort = 30'000'000;  // links visited
};

// Throws Error(ncclInvalidArgument) for other collectives. Throws with the reason if some rank
// cannot reach another.
Routing route_flow(const Machine& machine, const Collective& collective,
                   const FlowOptions& options = {});

// The result of route_flow() with the same load on every link, but with relays spread over as many
// ranks as possible. Better if many small messages share few slow links, worse elsewhere.
Routing spread_relays(const Machine& machine, const Routing& routing);

}  // namespace weft
