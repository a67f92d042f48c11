// See engine.h.
#include "algorithms/synth/latency/engine.h"

#include <utility>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/latency/latency.h"
#include "algorithms/synth/weave/weave.h"

namespace weft {
namespace {

// Plans are for one size. Above this size only throughput counts.
constexpr double kMostLatencyBytes = 64 << 20;

bool latency_applies(const SynthesisTask& task) {
  return forest_supports(task.collective) && task.bytes <= kMostLatencyBytes;
}

std::vector<std::function<Schedule()>> latency_candidates(const SynthesisTask& task) {
  LatencyOptions options;
  options.slice_bytes = task.options.simulation.slice_bytes;
  options.most_slices = task.options.simulation.most_slices;
  options.fifo_depth = task.options.simulation.fifo_depth;
  std::vector<std::function<Schedule()>> candidates;
  for (LatencyPlan& plan : latency_plans(task.machine, task.collective, task.bytes, options))
    candidates.emplace_back([&task, routing = std::move(plan.routing)] {
      return weave(routing, tight_weaving(task.machine));
    });
  return candidates;
}

}  // namespace

SynthesisEngine latency_engine() {
  return {"latency", "few hops and steps, planned for the size", latency_applies,
          latency_candidates};
}

}  // namespace weft
