// A timeline for people: for Perfetto, and as a picture. Pure functions.
#pragma once

#include <iosfwd>
#include <string>

#include "src/topology/graph/machine.h"
#include "src/workload/timeline.h"

namespace weft::workload {

// Trace events: a process per actor with a row per stream, and one with the busiest links.
void write_trace(const Machine& machine, const Graph& graph, const Timeline& timeline,
                 CommCosts& costs, std::ostream& out);

// Two timelines above each other on one scale: before and after.
std::string timelines_svg(const Graph& before, const Timeline& first, const Graph& after,
                          const Timeline& second);

}  // namespace weft::workload
