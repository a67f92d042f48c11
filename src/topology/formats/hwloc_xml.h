// hwloc's XML (format 2, as lstopo writes it): the PCI tree, NUMA nodes and OS devices. NVLinks
// come from an NVLinkBandwidth matrix if hwloc had NVML. The live machine is read through it too.
#pragma once

#include <string>
#include <string_view>

#include "src/topology/sources/host.h"

namespace weft {

// Throws Error with file, line and element.
Host host_from_hwloc_xml(std::string_view text, const std::string& where);

}  // namespace weft
