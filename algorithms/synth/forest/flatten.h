// Makes packed trees shallower without changing the load of any link. Two trees that reach a rank
// over different paths exchange them if data then arrives sooner overall. Inside the forest engine.
#pragma once

#include <vector>

#include "algorithms/synth/forest/forest.h"

namespace weft {

// `machine` has the links. Edges come out parents first.
void flatten(const Machine& machine, int ranks, std::vector<RoutedTree>& trees);

}  // namespace weft
