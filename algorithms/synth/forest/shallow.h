// Forests from one root for machines in which most ranks reach most others, such as a rack around
// one switch. Every rank passes data on in one tree only, as far as its links allow, so that trees
// are as wide as ranks have links and no deeper than that asks for. No flows are needed, so the
// trees need not come out even where they would fit. Inside the forest engine.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/forest/hierarchy.h"

namespace weft {

// Every GPU is a rank. `seconds` is what one tree takes at best. Fewest trees that are within a hop
// of the shallowest ones; nothing where no number of trees comes out.
std::optional<HostForest> grow_shallow(const Machine& machine, int32_t root, double seconds,
                                       const ForestOptions& options);

}  // namespace weft
