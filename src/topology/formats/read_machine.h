// Reads a Machine from a file of any format Weft knows, told apart by content.
#pragma once

#include <string>
#include <string_view>

#include "src/topology/graph/machine.h"

namespace weft {

// Weft JSON, NCCL or RCCL topology XML, hwloc XML, or the text of `nvidia-smi topo -m`. `where` (a
// file name) begins every error, which is one line. Throws Error.
Machine parse_machine(std::string_view text, const std::string& where);

// The same for a file. Cluster descriptions are read by load_machine() (algorithms/catalogue),
// which knows the names they use.
Machine read_machine_file(const std::string& path);

// A whole file; files above 64 MiB are refused. Throws Error.
std::string read_text_file(const std::string& path);

}  // namespace weft
