// Forests of machines that look alike from many ranks, such as a rack around one switch. Trees are
// grown for a few roots only and rotated for the others, so that all links that rotate into each
// other carry the same, whichever trees these are: what has to fit is only how often each kind of
// link is used. No flows are needed, and the trees are as shallow as can be. Inside the forest
// engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/forest/hierarchy.h"

namespace weft {

// A machine that is the same after rank r took the place of rank r + step, for all r.
struct Rotation {
  int32_t step = 0;            // divides the number of ranks
  std::vector<int32_t> links;  // what each link becomes
};

// The rotation with the least step, or nothing if there is none but all the way round.
std::optional<Rotation> find_rotation(const Machine& machine);

// Every GPU is a rank and a root. `seconds` is what a tree per root takes at best. Nothing when the
// machine has no rotation or the trees do not come out.
std::optional<HostForest> grow_by_symmetry(const Machine& machine, double seconds,
                                           const ForestOptions& options);

}  // namespace weft
