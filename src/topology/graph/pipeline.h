// The order of ranks along a pipeline: neighbours in the order hand activations to each other, so
// they should be near, and the stages that talk to another host should sit under the NIC's own
// switch.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// All GPUs of the machine (nodes), host by host. Within a host the first and the last are those
// with the best way to a NIC, and those between follow each other along wide paths.
std::vector<int> pipeline_order(const Machine& machine);

}  // namespace weft
