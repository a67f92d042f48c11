// The table of synthesis engines.
#include <memory>

#include "algorithms/generators/generators.h"
#include "algorithms/synth/flow/engine.h"
#include "algorithms/synth/forest/engine.h"
#include "algorithms/synth/latency/engine.h"
#include "algorithms/synth/synthesis.h"
#include "algorithms/synth/taccl/engine.h"

namespace weft {
namespace {

// A generator's schedule has about one step per pair of ranks. With more ranks it is no use.
constexpr int kMostGeneratorRanks = 128;

bool generators_apply(const SynthesisTask& task) {
  return task.collective.nranks <= kMostGeneratorRanks;
}

std::vector<std::function<Schedule()>> generator_candidates(const SynthesisTask& task) {
  std::vector<std::function<Schedule()>> candidates;
  for (const Generator& generator : generators())
    if (generator.channels <= kUsualChannels && !generator.between_hosts &&
        generator.supports(task.collective))
      candidates.emplace_back(
          [&task, &generator] { return generator.make(task.collective, false); });
  return candidates;
}

}  // namespace

const std::vector<SynthesisEngine>& synthesis_engines() {
  // Never destroyed: a thread may still search when the process ends.
  static const auto& engines = *std::make_unique<std::vector<SynthesisEngine>>(
                                    std::initializer_list<SynthesisEngine>{
                                        forest_engine(),
                                        latency_engine(),
                                        flow_engine(),
                                        {"generators", "the schedules of weft generators",
                                         generators_apply, generator_candidates},
                                        taccl_engine(),
                                    })
                                    .release();
  return engines;
}

}  // namespace weft
