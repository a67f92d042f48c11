// hwloc's view of this machine. Only this part of the topology needs libhwloc, so it has its own
// target.
#pragma once

#include <string>

namespace weft {

// XML for hwloc_xml.h. On failure "", and `why_not` says why. About 5 ms on a small host.
std::string hwloc_view(std::string& why_not) noexcept;

}  // namespace weft
