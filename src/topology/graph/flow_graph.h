// The Machine as routing and max-flow want it: a graph in which every walk is a way data can go.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct FlowGraph {
  Machine machine;          // GPUs first, in the order of the original
  std::vector<int> origin;  // per node: the node of the original it is (a part of)
};

// NICs become two nodes, one that only sends and one that only receives, so that nothing turns
// around inside a host; except those (fact loopback = "1") that pass data on between the GPUs
// beside them too, once they are on a network with other hosts. PCIe switches become an upward and
// a downward part where a GPU below has no peer-to-peer access (fact p2p = "0"), so that its data
// goes through a CPU. What only leads nowhere stays, and does no harm.
FlowGraph flow_graph(const Machine& machine);

}  // namespace weft
