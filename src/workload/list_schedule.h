// Orders compute so that ranks do something useful while they wait for communication: a list
// scheduler that lets work of low urgency fill the gaps. A pure function.
#pragma once

#include <functional>

#include "src/workload/comm_cost.h"
#include "src/workload/graph.h"

namespace weft::workload {

struct Filling {
  // Operations that fill gaps; the others keep their order.
  std::function<bool(const Op&)> fills;
  // A filler may take this many times the gap that it fills; later ones wait for a longer gap or
  // for the end. Large: any filler may begin when nothing else can.
  double overrun = 1e9;
};

// The same operations in the order in which the schedule begins them.
Graph fill_gaps(const Graph& graph, CommCosts& costs, const Filling& filling);

}  // namespace weft::workload
