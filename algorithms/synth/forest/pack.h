// Packs spanning trees into a graph of ranks: Edmonds' theorem says that they fit, Tarjan's way of
// growing them one edge at a time finds them, with capacities as multiplicities. Inside the forest
// engine.
#pragma once

#include "algorithms/synth/forest/forest_graph.h"

namespace weft {

struct TreeEdge {
  int32_t from = 0, to = 0;
};

// `count` equal trees; edges in an order in which each starts at a rank that was reached.
struct PackedTree {
  int32_t root = 0;
  int64_t count = 0;
  std::vector<TreeEdge> edges;
};

// All of the demand; takes the trees' units out of `graph` by number only. Prefers short trees.
// Throws Error(ncclInternalError) where they do not fit.
std::vector<PackedTree> pack_trees(const ForestGraph& graph, const ForestDemand& demand);

}  // namespace weft
