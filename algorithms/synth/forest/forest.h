// The forest engine: the best throughput that a machine allows for collectives in which everybody
// gets everything (all_gather, broadcast) and their mirrors (reduce_scatter, reduce, all_reduce),
// without a solver. The optimum comes from maximum flows, switches are split off the graph, and
// spanning trees are packed into what is left. Pure functions.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct ForestOptions {
  double acceptable_loss = 0.004;  // of throughput, for having fewer trees
  int most_trees = 16;             // per root
  int most_flat_ranks = 32;        // beyond, clusters of equal hosts are composed: hierarchy.h
  bool quick = false;              // beyond, nothing that takes long: an Error instead
};

// A tree with the links of each of its edges; pieces and times are not set.
struct RoutedTree {
  int32_t root = 0;
  std::vector<Transfer> edges;  // parents before children
};

struct Forest {
  Collective collective;
  int32_t trees = 0;  // per root
  std::vector<RoutedTree> routed;
  // Of an all_reduce: those that reduce, on the machine turned round.
  int32_t reduction_trees = 0;
  std::vector<RoutedTree> reduction;
  bool uneven = false;  // packed as it is, though equal hosts would have been composed
};

// Whether trees from all roots are so deep that lanes often wait: then several instances of the
// lanes do better than one.
bool is_deep(const Forest& forest);

bool forest_supports(const Collective& collective);

// Throws Error(ncclInvalidUsage) in one line when some rank is out of reach of another.
Forest grow_forest(const Machine& machine, const Collective& collective,
                   const ForestOptions& options = {});

struct ForestPieces {
  double bytes = 1 << 30;  // of the whole array
  int pieces = 1;          // of a tree at least; more follow each other more closely
  bool by_rounds = true;   // whether the first pieces of all trees go before the second of any
  int instances = 1;       // of the lanes that weave() makes; more: all pieces go in the same order
};
Routing forest_routing(const Machine& machine, const Forest& forest, const ForestPieces& cut = {});

}  // namespace weft
