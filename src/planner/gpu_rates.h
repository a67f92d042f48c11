// What a step of a plan costs on GPUs, where every rank has a GPU of its own. One row per
// generation, with where its numbers come from. `weft calibrate` overrides them. Links are not
// here: the machine has their rates (src/topology/sources/rates.h). Plain data.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/planner/rates_file.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct GpuGeneration {
  int sm = 0;  // compute capability, from this one on
  std::string_view name;
  int multiprocessors = 0;
  double call_us = 0;        // until the first step of a kernel
  double step_us = 0;        // lanes: a step
  double message_us = 0;     // lanes: a message sent, or received
  double packet_us = 0;      // packets: a message sent or received; load and store: a meeting
  double lane_start_us = 0;  // lanes: how much later the first step is
  std::string_view origin;
};
// From new to old.
std::span<const GpuGeneration> gpu_generations();

// The oldest generation among the GPUs of a machine; of unknown GPUs, the last one in the table.
const GpuGeneration& generation_of(const Machine& machine);

// The rates for plans on the GPUs of a machine: those of a calibration, if it has some for GPUs
// that ranks do not share, else those of the generation.
struct GpuRates {
  double call_us = 0, step_us = 0, message_us = 0, packet_us = 0, lane_start_us = 0;
  std::string origin;  // in words
};
GpuRates gpu_rates(const Machine& machine, const Calibration* measured);

// `options` with the costs of lanes, or of kernels that load and store or send packets.
SimulationOptions lane_costs(SimulationOptions options, const GpuRates& rates);
SimulationOptions kernel_costs(SimulationOptions options, const GpuRates& rates, int nranks);

}  // namespace weft
