// hwloc's view of this machine: the only part of the topology that needs libhwloc, and a target of
// its own.
#pragma once

#include <string>

namespace weft {

// As XML for hwloc_xml.h, or "" and why not. About 5 ms on a small host.
std::string hwloc_view(std::string& why_not) noexcept;

}  // namespace weft
