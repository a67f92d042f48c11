// Makes packed trees shallower without changing what any link carries: two trees that reach a rank
// over different ways exchange them where that brings data sooner, all in all. Inside the forest
// engine.
#pragma once

#include <vector>

#include "algorithms/synth/forest/forest.h"

namespace weft {

// `machine` is the one that the links are of. Edges come out parents first.
void flatten(const Machine& machine, int ranks, std::vector<RoutedTree>& trees);

}  // namespace weft
