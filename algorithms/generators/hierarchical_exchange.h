// Alltoall of hierarchical.h.
#pragma once

#include "algorithms/generators/host_map.h"
#include "src/schedule/schedule.h"

namespace weft {

Schedule make_hierarchical_exchange(const Collective& collective, const HostMap& map);

}  // namespace weft
