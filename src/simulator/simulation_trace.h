// A simulation for people: the critical path in few lines, and the timeline for chrome://tracing or
// Perfetto. Both need a simulation that was recorded. Pure functions.
#pragma once

#include <iosfwd>
#include <vector>

#include "src/simulator/simulator.h"

namespace weft {

// A stretch of the critical path within one lane and step, over several slices perhaps.
struct PathPart {
  StepId first;
  int spans = 1;
  double begin_us = 0, end_us = 0;
};
std::vector<PathPart> critical_parts(const Schedule& schedule, const Simulation& simulation);

// "rrc 3 from 2, 7 -> o[4], to 5": what a step does, in few words.
std::string short_text(const Step& step);

// Writes the trace event format: one process per rank with a row per lane, and one process with a
// row per link that was used. Times are microseconds.
void write_trace(const Machine& machine, const Schedule& schedule, const Simulation& simulation,
                 std::ostream& out);

}  // namespace weft
