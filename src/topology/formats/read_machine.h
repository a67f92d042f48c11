// Reads a Machine from a file of any format that Weft knows. The content tells the format.
#pragma once

#include <string>
#include <string_view>

#include "src/topology/graph/machine.h"

namespace weft {

// Weft JSON, NCCL or RCCL topology XML, hwloc XML, or the text of `nvidia-smi topo -m`. Errors are
// one line that begins with `where` (a file name). Throws Error.
Machine parse_machine(std::string_view text, const std::string& where);

// Reads a file. load_machine() (algorithms/catalogue) reads cluster descriptions, because it knows
// the names they use.
Machine read_machine_file(const std::string& path);

// Reads a whole file; refuses files above 64 MiB. Throws Error.
std::string read_text_file(const std::string& path);

}  // namespace weft
