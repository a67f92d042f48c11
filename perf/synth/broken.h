// Machines that are not as they were built, for synth_perf --broken.
#pragma once

#include <string>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct BrokenMachine {
  std::string name;  // what is broken
  Machine machine;
};

// As far as the machine has such parts, each once: a link between two GPUs gone; a NIC at half its
// rate; a GPU whose NVLinks are all gone but which can still be reached; a GPU gone, so that hosts
// differ where there are several.
std::vector<BrokenMachine> broken_machines(const Machine& machine);

}  // namespace weft
