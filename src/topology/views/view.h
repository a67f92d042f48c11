// A Machine as text and as drawings.
#pragma once

#include <string>

#include "src/topology/graph/machine.h"

namespace weft {

// A tree with bandwidths; a matrix of GPUs like `nvidia-smi topo -m`, but in effective GB/s; the
// NIC of each GPU and the gain of a relay; the order for pipelines; the notes.
std::string machine_text(const Machine& machine);

std::string machine_dot(const Machine& machine);  // Graphviz
std::string machine_svg(const Machine& machine);

}  // namespace weft
