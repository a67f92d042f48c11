// See engine.h.
#include "algorithms/synth/taccl/engine.h"

#include <algorithm>

#include "algorithms/synth/taccl/sketch.h"
#include "algorithms/synth/taccl/taccl.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

// Plans to simulate, with two kinds of lanes each, besides the best by the model. Plans of few
// parts come first: the model ignores costs that many small messages have.
constexpr size_t kMostPlans = 5;

bool applies(const SynthesisTask& task) {
  return task.collective.kind != CollectiveKind::kSendRecv && !task.options.sketch.empty();
}

std::vector<std::function<Schedule()>> candidates(const SynthesisTask& task) {
  const Sketch sketch = load_sketch(task.options.sketch);
  TacclOptions options;
  options.bytes = task.bytes;
  // The rest of the time is for simulating candidates.
  options.time_limit_s = task.seconds_left * 0.6;
  std::string why_not;
  options.solver = Solver::find(why_not);
  const auto say = [&](const std::string& line) {
    if (task.options.progress) task.options.progress("taccl: " + line);
  };
  if (options.solver == nullptr) {
    // A solver that the user names must exist. Without a name any available one is used.
    const std::string named = Config::from_environment().solver_plugin;
    if (!named.empty() && named != "none") fail(ncclInvalidUsage, "{}", why_not);
    say(why_not + "; heuristics only");
    WEFT_INFO(kTuning, "taccl: {}; heuristics only", why_not);
  }
  TacclResult result = taccl_plans(task.machine, task.collective, sketch, options);
  for (const std::string& note : result.notes) say(note);
  if (result.plans.size() > kMostPlans) {
    const auto best = std::min_element(
        result.plans.begin(), result.plans.end(),
        [](const TacclPlan& a, const TacclPlan& b) { return a.time_us < b.time_us; });
    if (static_cast<size_t>(best - result.plans.begin()) > kMostPlans)
      std::iter_swap(result.plans.begin() + kMostPlans, best);
    result.plans.resize(kMostPlans + 1);
  }
  std::vector<std::function<Schedule()>> made;
  for (const TacclPlan& plan : result.plans) {
    // Lanes per hop never wait for each other; they are for data that executors slice.
    const double piece_bytes = task.bytes / (task.collective.nranks * plan.routing.chunks);
    const bool sliced = piece_bytes > task.options.simulation.slice_bytes;
    for (const bool by_hops : {sliced, !sliced})
      made.emplace_back([&task, routing = plan.routing, by_hops] {
        WeaveOptions weaving = tight_weaving(task.machine);
        weaving.by_hops = by_hops;
        return weave(routing, weaving);
      });
  }
  return made;
}

}  // namespace

SynthesisEngine taccl_engine() {
  return {"taccl", "what a sketch allows, as TACCL does it", applies, candidates};
}

}  // namespace weft
