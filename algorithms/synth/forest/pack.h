// Packs spanning trees into a graph of ranks. Edmonds' theorem says that they fit. Tarjan's method
// grows them one edge at a time, with capacities as multiplicities. Inside the forest engine.
#pragma once

#include "algorithms/synth/forest/forest_graph.h"

namespace weft {

struct TreeEdge {
  int32_t from = 0, to = 0;
};

// `count` equal trees. Edges are in an order in which each starts at a rank already reached.
struct PackedTree {
  int32_t root = 0;
  int64_t count = 0;
  std::vector<TreeEdge> edges;
};

// Packs all of the demand. Subtracts the trees' units from a copy of the capacities. Prefers short
// trees. Throws Error(ncclInternalError) if they do not fit.
std::vector<PackedTree> pack_trees(const ForestGraph& graph, const ForestDemand& demand);

}  // namespace weft
