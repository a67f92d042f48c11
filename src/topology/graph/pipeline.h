// The order of ranks along a pipeline. Neighbours pass activations to each other, so they should be
// near. The stages that talk to another host should sit under the NIC's own switch.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// All GPUs of the machine (nodes), host by host. A host's first and last GPU have the best paths to
// a NIC. The others follow each other along paths of high bandwidth.
std::vector<int> pipeline_order(const Machine& machine);

}  // namespace weft
