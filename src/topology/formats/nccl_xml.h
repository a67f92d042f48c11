// NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), and RCCL's (version 2, with xgmi).
#pragma once

#include <string>
#include <string_view>

#include "src/topology/sources/host.h"

namespace weft {

// Throws Error with file, line and element.
Host host_from_nccl_xml(std::string_view text, const std::string& where);

// Writes a graph of one host in this format; reading it back gives the same graph. Invents what the
// format needs and the graph lacks (bus ids, a CPU). Throws Error if the machine has several hosts.
std::string machine_to_nccl_xml(const Machine& machine);

}  // namespace weft
