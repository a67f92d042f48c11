// Spreads relays over ranks. A FIFO that has many messages of every slice lets its sender run ahead
// by fewer slices than others have room for, so it falls behind wherever they share a link: what is
// relayed shall come from many ranks, a little from each.
#pragma once

#include <vector>

#include "algorithms/synth/flow/flow_paths.h"

namespace weft {

// Two chunks for, or from, the same rank whose paths meet at a node exchange the other parts of
// their paths, which changes no link's load, where that evens out how many chunks take each hop
// between two ranks. Deterministic.
void even_hops(const FlowNetwork& network, const std::vector<Demand>& demands,
               PathAssignment& assignment);

}  // namespace weft
