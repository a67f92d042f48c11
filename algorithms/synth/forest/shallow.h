// Forests from one root for machines in which most ranks reach most others, such as a rack around
// one switch. Every rank relays data in only one tree, as far as its links allow. So trees are as
// wide as ranks have links, and no deeper than needed. This needs no flows, but may find no trees
// even if some would fit. Inside the forest engine.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/forest/hierarchy.h"

namespace weft {

// Every GPU is a rank. `seconds` is the least time of one tree. Returns the fewest trees that are
// within a hop of the shallowest. Nothing if no number of trees works.
std::optional<HostForest> grow_shallow(const Machine& machine, int32_t root, double seconds,
                                       const ForestOptions& options);

}  // namespace weft
