// A Machine for people: text, and drawings.
#pragma once

#include <string>

#include "src/topology/graph/machine.h"

namespace weft {

// A tree with bandwidths, a matrix of GPUs like `nvidia-smi topo -m` but with effective GB/s, which
// NIC each GPU uses and what a relay would give, the order for pipelines, and the notes.
std::string machine_text(const Machine& machine);

std::string machine_dot(const Machine& machine);  // Graphviz
std::string machine_svg(const Machine& machine);

}  // namespace weft
