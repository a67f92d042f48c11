// Rings and chains that follow a machine instead of rank numbers. Pure functions.
#pragma once

#include <span>

#include "src/schedule/schedule.h"

namespace weft {

// As the generators ring (chains for broadcast and reduce), along `order`: the ranks in the order
// of the ring. `both`: half of the data goes the other way round, so that both directions of every
// link are used. Supports what ring supports.
Schedule ordered_ring(const Collective& collective, std::span<const int> order, bool both);

// As the generator chain, along `order`.
Schedule ordered_chain(std::span<const int> order);

}  // namespace weft
