// Simulates a schedule as the lane kernel runs it: in slices as large as FIFOs allow, and with
// several instances of every lane. Each has its share of every chunk and FIFOs of its own.
#pragma once

#include <optional>

#include "src/schedule/schedule.h"
#include "src/simulator/lane_cut.h"
#include "src/simulator/simulator.h"

namespace weft {

// nullopt: a step moves chunks of several blocks, which instances would tear apart.
std::optional<Schedule> with_instances(const Schedule& schedule, int instances);

// `options` with as many slices as there is time for at init.
SimulationOptions quick_lanes(SimulationOptions options, int nranks);

// `options.slice_bytes` is not used.
Simulation simulate_lanes(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                          const LaneCut& cut, SimulationOptions options);

}  // namespace weft
