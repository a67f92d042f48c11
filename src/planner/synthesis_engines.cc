// The table of synthesis engines.
#include "algorithms/generators/generators.h"
#include "algorithms/synth/forest.h"
#include "algorithms/synth/weave.h"
#include "src/planner/synthesis.h"

namespace weft {
namespace {

// A generator's schedule has about as many steps as pairs of ranks: beyond this it helps nobody.
constexpr int kMostGeneratorRanks = 128;

bool forest_applies(const SynthesisTask& task) { return forest_supports(task.collective); }

// More pieces per tree hide the time that data travels, more lanes the time that lanes wait.
std::vector<std::function<Schedule()>> forest_candidates(const SynthesisTask& task) {
  struct Variant {
    int pieces;
    bool by_hops;
  };
  std::vector<std::function<Schedule()>> candidates;
  for (const Variant v : {Variant{1, false}, Variant{4, false}, Variant{4, true}, Variant{16, false}})
    candidates.emplace_back([&task, v] {
      ForestOptions options;
      options.bytes = task.bytes;
      options.pieces = v.pieces;
      WeaveOptions weaving;
      weaving.machine = &task.machine;
      weaving.by_hops = v.by_hops;
      return weave(forest_routing(task.machine, task.collective, options), weaving);
    });
  return candidates;
}

bool generators_apply(const SynthesisTask& task) {
  return task.collective.nranks <= kMostGeneratorRanks;
}

std::vector<std::function<Schedule()>> generator_candidates(const SynthesisTask& task) {
  std::vector<std::function<Schedule()>> candidates;
  for (const Generator& generator : generators())
    if (generator.supports(task.collective))
      candidates.emplace_back([&task, &generator] { return generator.make(task.collective, false); });
  return candidates;
}

}  // namespace

const std::vector<SynthesisEngine>& synthesis_engines() {
  static const std::vector<SynthesisEngine> kEngines = {
      {"forest", "spanning trees packed to the optimum", forest_applies, forest_candidates},
      {"generators", "the schedules of weft generators", generators_apply, generator_candidates},
  };
  return kEngines;
}

}  // namespace weft
