// The forest engine: the best throughput of a machine, without a solver. For collectives in which
// all ranks get all data (all_gather, broadcast) and their mirrors (reduce_scatter, reduce,
// all_reduce). Maximum flows give the optimum. Switches are split off the graph, and spanning trees
// are packed into the rest. Pure functions.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct ForestOptions {
  double acceptable_loss = 0.004;  // of throughput, for fewer trees
  int most_trees = 16;             // per root
  int most_flat_ranks = 32;        // above, clusters of equal hosts are composed: hierarchy.h
  bool quick = false;              // above most_flat_ranks, throws an Error instead of long work
};

// A tree with the links of each edge; pieces and times are not set.
struct RoutedTree {
  int32_t root = 0;
  std::vector<Transfer> edges;  // parents before children
};

struct Forest {
  Collective collective;
  int32_t trees = 0;  // per root
  std::vector<RoutedTree> routed;
  // all_reduce: the trees that reduce, on the reversed machine.
  int32_t reduction_trees = 0;
  std::vector<RoutedTree> reduction;
  bool uneven = false;  // more than most_flat_ranks, but packed flat: nothing else worked
};

// Whether trees from all roots are so deep that lanes often wait. Then several instances of the
// lanes are better than one.
bool is_deep(const Forest& forest);

bool forest_supports(const Collective& collective);

// Throws Error(ncclInvalidUsage) in one line if some rank cannot reach another.
Forest grow_forest(const Machine& machine, const Collective& collective,
                   const ForestOptions& options = {});

struct ForestPieces {
  double bytes = 1 << 30;  // of the whole array
  int pieces = 1;          // per tree at least; more follow each other more closely
  bool by_rounds = true;   // the first pieces of all trees go before the second of any
  int instances = 1;       // of the lanes that weave() makes; if more, all pieces have the same
                           // order
};
Routing forest_routing(const Machine& machine, const Forest& forest, const ForestPieces& cut = {});

}  // namespace weft
