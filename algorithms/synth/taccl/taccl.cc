// See taccl.h.
#include "algorithms/synth/taccl/taccl.h"

#include <algorithm>
#include <optional>

#include "algorithms/synth/taccl/half.h"
#include "algorithms/synth/taccl/logical_topology.h"

namespace weft {
namespace {

// Plans this much slower in the model than the best one are not simulated.
constexpr double kWorthATry = 1.1;

}  // namespace

TacclResult taccl_plans(const Machine& machine, const Collective& collective, const Sketch& sketch,
                        const TacclOptions& options) {
  TacclResult result;
  const bool both = collective.kind == CollectiveKind::kAllReduce;
  const auto begin = TacclHalf::Clock::now();
  const auto after = [&](double share) {
    return begin + std::chrono::duration_cast<TacclHalf::Clock::duration>(
                       std::chrono::duration<double>(options.time_limit_s * share));
  };
  const Machine turned = turned_round(machine);
  TacclHalf half(collective.reduces() && !both ? turned : machine, collective, sketch, options,
                 after(both ? 0.5 : 1), result);
  std::optional<TacclHalf> reduction;
  if (both) reduction.emplace(turned, collective, sketch, options, after(1), result);

  std::vector<TacclPlan>& plans = result.plans;
  for (const TacclHalf::Plan& found : half.plans()) {
    const int parts = found.order.parts;
    const TacclHalf::Plan* mirror = both ? reduction->find(parts, found.solved) : nullptr;
    if (both && mirror == nullptr) continue;
    TacclPlan plan;
    plan.parts = parts;
    plan.solved = found.solved;
    plan.routing.collective = collective;
    plan.routing.chunks = half.chunks() * parts;
    plan.time_us = half.finish(found, plan.routing.transfers);
    if (both) plan.time_us += reduction->finish(*mirror, plan.routing.reduction);
    if (!plan.solved && (result.heuristic_us == 0 || plan.time_us < result.heuristic_us))
      result.heuristic_us = plan.time_us;
    plans.push_back(std::move(plan));
  }
  double best = plans.front().time_us;
  for (const TacclPlan& plan : plans) best = std::min(best, plan.time_us);
  std::erase_if(plans, [&](const TacclPlan& plan) { return plan.time_us > best * kWorthATry; });
  std::stable_sort(plans.begin(), plans.end(), [](const TacclPlan& a, const TacclPlan& b) {
    return a.parts != b.parts ? a.parts < b.parts : a.time_us < b.time_us;
  });
  return result;
}

}  // namespace weft
