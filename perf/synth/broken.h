// Machines with a fault, for synth_perf --broken.
#pragma once

#include <string>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct BrokenMachine {
  std::string name;  // the broken part
  Machine machine;
};

// Breaks each part that the machine has, one at a time. A link between two GPUs is gone. A NIC has
// half its rate. A GPU has lost all its NVLinks but can still be reached. A GPU is gone, so that
// hosts differ if there are several.
std::vector<BrokenMachine> broken_machines(const Machine& machine);

}  // namespace weft
