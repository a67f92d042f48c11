// The forest engine: the best throughput that a machine allows for collectives in which everybody
// gets everything (all_gather, broadcast) and their mirrors (reduce_scatter, reduce, all_reduce),
// without a solver. The optimum comes from maximum flows, switches are split off the graph, and
// spanning trees are packed into what is left. Pure functions.
#pragma once

#include "algorithms/synth/transfers.h"
#include "src/topology/machine.h"

namespace weft {

struct ForestOptions {
  double bytes = 1 << 30;      // of the whole array; decides how finely trees are cut
  double acceptable_loss = 0.002;  // of throughput, for having fewer trees
  int most_trees = 16;         // per root
  int pieces = 1;              // of a tree at least; more follow each other more closely
};

bool forest_supports(const Collective& collective);

// Throws Error(ncclInvalidUsage) in one line when some rank is out of reach of another.
Routing forest_routing(const Machine& machine, const Collective& collective,
                       const ForestOptions& options = {});

}  // namespace weft
