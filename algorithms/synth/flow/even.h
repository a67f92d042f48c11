// Spreads relays over ranks. A FIFO that has many messages in every slice lets its sender run ahead
// by fewer slices than other FIFOs. So it falls behind on shared links. Relayed data should come
// from many ranks, a little from each.
#pragma once

#include <vector>

#include "algorithms/synth/flow/flow_paths.h"

namespace weft {

// Takes two chunks for, or from, the same rank whose paths meet at a node. They exchange the rest
// of their paths if that evens out how many chunks take each hop. No link's load changes.
// Deterministic.
void even_hops(const FlowNetwork& network, const std::vector<Demand>& demands,
               PathAssignment& assignment);

}  // namespace weft
