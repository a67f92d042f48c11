// See gpu_rates.h.
#include "src/planner/gpu_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace weft {
namespace {

// Eight ranks that share an H200, in CUDA graphs: a call whose kernel does nothing takes 1.8 us, a
// round of packets 0.87 us, a hop of a lane 1.6 us. The numbers below are derived from these and
// not fitted. Of each, 0.4 us are taken for the way through memory (half of a round trip of 0.8
// us); the simulator has the latency of the real way. Of the hop the rest is a step, and a message
// in and out. How it is divided is a judgement: no machine with one rank per GPU has been measured.
// A ring of lanes takes 4 us more than its call and its hops: these kernels have more to read.
constexpr std::string_view kDerived = "derived from ranks that share an H200, in graphs";
// NCCL's tables have the same latencies for Volta, Ampere and Hopper, and so do these rows.
constexpr std::string_view kAssumed = "as Hopper: nobody has measured them";

constexpr std::array<GpuGeneration, 7> kGenerations = {{
    {100, "Blackwell", 148, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
    {90, "Hopper", 132, 1.8, 0.6, 0.2, 0.47, 4, kDerived},
    {89, "Ada", 128, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
    {86, "Ampere (GA10x)", 82, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
    {80, "Ampere", 108, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
    {70, "Volta", 80, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
    {0, "unknown", 56, 1.8, 0.6, 0.2, 0.47, 4, kAssumed},
}};

// By name, where files do not say the compute capability.
int capability_of(const Node& gpu) {
  if (const std::string_view sm = fact(gpu, "sm"); !sm.empty())
    return std::atoi(std::string(sm).c_str());
  constexpr std::pair<std::string_view, int> kModels[] = {
      {"B200", 100}, {"H100", 90}, {"H200", 90}, {"H800", 90}, {"L20", 89},
      {"4090", 89},  {"A100", 80}, {"A800", 80}, {"3090", 86}, {"V100", 70}};
  for (const auto& [model, sm] : kModels)
    if (gpu.model.find(model) != std::string::npos) return sm;
  return 0;
}

const GpuGeneration& generation_from(int sm) {
  return *std::find_if(kGenerations.begin(), kGenerations.end(),
                       [sm](const GpuGeneration& row) { return sm >= row.sm; });
}

}  // namespace

std::span<const GpuGeneration> gpu_generations() { return kGenerations; }

const GpuGeneration& generation_of(const Machine& machine) {
  int least = 1000;
  for (const int gpu : gpus(machine))
    least = std::min(least, capability_of(machine.nodes[static_cast<size_t>(gpu)]));
  return generation_from(least);
}

GpuRates gpu_rates(const Machine& machine, const Calibration* measured) {
  if (measured != nullptr)
    if (const auto it = measured->rates.find(kOwnGpuRates); it != measured->rates.end()) {
      const Rates& rates = it->second;
      return {rates.call_us, rates.step_us,       rates.message_us,
              rates.hop_us,  rates.lane_start_us, "rates " + measured->measured};
    }
  const GpuGeneration& row = generation_of(machine);
  return {row.call_us,   row.step_us,       row.message_us,
          row.packet_us, row.lane_start_us, fmt::format("rates of {} ({})", row.name, row.origin)};
}

SimulationOptions lane_costs(SimulationOptions options, const GpuRates& rates) {
  options.step_us = rates.step_us;
  options.message_us = rates.message_us;
  return options;
}

SimulationOptions kernel_costs(SimulationOptions options, const GpuRates& rates, int nranks) {
  // Threads send and poll in parallel: a step with many messages takes hardly longer.
  options.step_us = rates.packet_us / 2;  // one end of a message
  options.message_us = 0;
  // Loads and stores move in small pieces, few at a time. As small as there is time to simulate.
  options.slice_bytes = 64 << 10;
  options.most_slices = std::max(64, 2048 / std::max(1, nranks));
  options.fifo_depth = 4;
  return options;
}

}  // namespace weft
