// A simulation as text: the critical path in a few lines, and the timeline for chrome://tracing or
// Perfetto. Both need SimulationOptions::record. Pure functions.
#pragma once

#include <iosfwd>
#include <vector>

#include "src/simulator/simulator.h"

namespace weft {

// A part of the critical path within one lane and step; it may cover several slices.
struct PathPart {
  StepId first;
  int spans = 1;
  double begin_us = 0, end_us = 0;
};
std::vector<PathPart> critical_parts(const Schedule& schedule, const Simulation& simulation);

// What a step does, in short: "rrc 3 from 2, 7 -> o[4], to 5".
std::string short_text(const Step& step);

// Writes the trace event format: one process per rank with a row per lane, and one process with a
// row per link that was used. Times are microseconds.
void write_trace(const Machine& machine, const Schedule& schedule, const Simulation& simulation,
                 std::ostream& out);

}  // namespace weft
