// The output of `nvidia-smi topo -m`, as a last resort: people paste it when asked about their
// machine.
#pragma once

#include <string>
#include <string_view>

#include "src/topology/graph/machine.h"

namespace weft {

// Whether a text looks like such a matrix.
bool is_smi_matrix(std::string_view text);

// Throws Error with file and line.
Machine machine_from_smi_matrix(std::string_view text, const std::string& where);

}  // namespace weft
