// The Machine for routing and max-flow: a graph in which every walk is a path that data can take.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct FlowGraph {
  Machine machine;          // GPUs first, in the order of the original
  std::vector<int> origin;  // per node: its node in the original, whole or a part of it
};

// A NIC becomes two nodes, one that only sends and one that only receives, so that no data turns
// round inside a host. Exception: a NIC with the fact loopback = "1" also carries data between the
// GPUs beside it, once it is on a network with other hosts. A PCIe switch becomes an upward and a
// downward node if a GPU below has no peer-to-peer access (fact p2p = "0"). Then the GPU's data
// goes through a CPU. Dead ends stay; they do no harm.
FlowGraph flow_graph(const Machine& machine);

}  // namespace weft
