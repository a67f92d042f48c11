// Removes the nodes that are not ranks (switches, CPUs, NICs) from a ForestGraph. Capacity that
// enters over one edge and leaves over another becomes a direct edge, which remembers its links.
// The trees still fit. Inside the forest engine.
#pragma once

#include "algorithms/synth/forest/forest_graph.h"

namespace weft {

// The result has only the ranks. A switch's capacity is first spread evenly over the pairs of its
// neighbours. If the trees then do not fit, it is split pair by pair, each as far as they still
// fit. `fits` is false if a graph of unequal directions could not be split without loss.
struct SplitGraph {
  ForestGraph graph{0};
  bool fits = true;
};
SplitGraph split_off(const Machine& machine, const ForestGraph& graph, const ForestDemand& demand);

}  // namespace weft
