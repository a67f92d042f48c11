// Removes the nodes that are no ranks (switches, CPUs, NICs) from a ForestGraph: what came in over
// one edge and left over another becomes an edge of its own, which remembers the links it stands
// for. The trees still fit. Inside the forest engine.
#pragma once

#include "algorithms/synth/forest/forest_graph.h"

namespace weft {

// The result has only the ranks. A switch's ways are first spread evenly over the pairs of its
// neighbours; where that leaves too little, pair by pair, each as far as the trees still fit. False
// in `fits` when a graph of unequal directions could not be split without loss.
struct SplitGraph {
  ForestGraph graph{0};
  bool fits = true;
};
SplitGraph split_off(const Machine& machine, const ForestGraph& graph, const ForestDemand& demand);

}  // namespace weft
