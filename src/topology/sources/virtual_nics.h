// Which network interfaces carry no cable: bridges, tunnels and the ends of containers' wires. They
// all claim 10 Gb/s and would win against real but slower ones.
#pragma once

#include <string_view>

namespace weft {

// What kind of virtual interface a name gives away ("a container's veth"), or "" if it may be real.
std::string_view virtual_nic(std::string_view name);

}  // namespace weft
