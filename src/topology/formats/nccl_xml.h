// NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), and RCCL's (version 2, with xgmi).
#pragma once

#include <string>
#include <string_view>

#include "src/topology/sources/host.h"

namespace weft {

// Throws Error with file, line and element.
Host host_from_nccl_xml(std::string_view text, const std::string& where);

// The same format from a graph of one host; what is read back describes the same graph. Where the
// format needs what the graph has not (bus ids, a CPU), it is made up. Throws Error if the machine
// has several hosts.
std::string machine_to_nccl_xml(const Machine& machine);

}  // namespace weft
