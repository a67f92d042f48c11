// Forests of machines that look alike from many ranks, such as a rack around one switch. Trees are
// grown for a few roots and rotated for the others. So all links of a kind, which rotate into each
// other, carry the same load, whatever the trees. Only the use of each kind of link has to fit.
// This needs no flows, and the trees are as shallow as possible. Inside the forest engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/forest/hierarchy.h"

namespace weft {

// A machine that is unchanged when rank r takes the place of rank r + step, for all r.
struct Rotation {
  int32_t step = 0;            // divides the number of ranks
  std::vector<int32_t> links;  // the image of each link
};

// The rotation with the least step, or nothing if only the full circle works.
std::optional<Rotation> find_rotation(const Machine& machine);

// Every GPU is a rank and a root. `seconds` is the least time of a tree per root. Nothing if the
// machine has no rotation or no trees are found.
std::optional<HostForest> grow_by_symmetry(const Machine& machine, double seconds,
                                           const ForestOptions& options);

}  // namespace weft
