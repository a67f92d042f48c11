// What reductions would take on boxes whose GPUs talk over PCIe alone if CPUs did them: every GPU
// writes its data into host memory once and reads the result once, instead of passing partial sums
// through the host bridge. CPUs are nodes of the graph, so their links are shared as all others. A
// prediction only: executors have no lanes on CPUs beside GPUs yet.
#pragma once

#include <optional>

#include "src/planner/simulator.h"
#include "src/schedule/collective.h"
#include "src/topology/machine.h"

namespace weft {

inline constexpr const char* kCpuReduce = "cpu_reduce";

// Whether it makes sense at all: one host, CPUs, no NVLink or the like, all_reduce or reduce.
bool cpus_could_help(const Machine& machine, const Collective& collective);

// Microseconds for an array of so many bytes. Throws Error where some GPU cannot reach a CPU.
double simulate_cpu_help(const Machine& machine, const Collective& collective, double bytes,
                         const SimulationOptions& options);

}  // namespace weft
