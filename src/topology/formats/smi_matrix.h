// The text that `nvidia-smi topo -m` prints, as a last resort: what people paste when asked what
// their machine looks like.
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
