// Recognizes virtual network interfaces: bridges, tunnels and containers' veths. They all claim 10
// Gb/s and would win against real but slower NICs.
#pragma once

#include <string_view>

namespace weft {

// The kind of virtual interface that a name reveals ("a container's veth"), or "" if it may be
// real.
std::string_view virtual_nic(std::string_view name);

}  // namespace weft
