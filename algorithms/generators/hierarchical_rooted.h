// Broadcast and reduce of hierarchical.h.
#pragma once

#include "algorithms/generators/host_map.h"
#include "src/schedule/schedule.h"

namespace weft {

Schedule make_hierarchical_rooted(const Collective& collective, const HostMap& map);

}  // namespace weft
