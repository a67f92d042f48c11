// hwloc's view of this machine. libhwloc is loaded at run time: the one that the package carries
// beside the library, or the system's.
#pragma once

#include <string>

namespace weft {

// XML for hwloc_xml.h. On failure "", and `why_not` says why. About 5 ms on a small host.
std::string hwloc_view(std::string& why_not) noexcept;

// The same with another library (tests).
std::string hwloc_view_of(const std::string& library, std::string& why_not) noexcept;

}  // namespace weft
