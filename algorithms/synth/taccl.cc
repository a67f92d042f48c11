// See taccl.h.
#include "algorithms/synth/taccl.h"

#include <algorithm>
#include <chrono>

#include "algorithms/synth/logical_topology.h"
#include "algorithms/synth/taccl_contiguity.h"
#include "algorithms/synth/taccl_greedy.h"
#include "algorithms/synth/taccl_ordering.h"
#include "algorithms/synth/taccl_problem.h"
#include "algorithms/synth/taccl_routing.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr size_t kMostSends = 200000;
constexpr int32_t kMostColumns = 100000;
// Finer parts, and a solver's routes, must be worth it.
constexpr double kWorth = 0.995;

double block_bytes(const Collective& c, double bytes) {
  const bool whole = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce;
  return whole ? bytes : bytes / c.nranks;
}

struct Plan {
  TacclRoutes routes;
  TacclOrder order;
  bool better_than(const Plan& other) const {
    return other.order.sends.empty() || order.time_us < other.order.time_us * kWorth;
  }
};

// The best order of these routes in this many parts.
TacclOrder best_order(const TacclProblem& problem, const TacclRoutes& routes, int parts) {
  TacclOrder best;
  for (const OrderRule rule :
       {OrderRule::kLongestPathFromNow, OrderRule::kShortestPathUntilNow, OrderRule::kEarliest}) {
    TacclOrder order = order_sends(problem, routes, parts, rule);
    if (best.sends.empty() || order.time_us < best.time_us * (1 - 1e-9)) best = std::move(order);
  }
  return best;
}

// One direction: gathering, on the machine as given.
class Half {
 public:
  Half(const Machine& machine, const Collective& collective, const Sketch& sketch,
       const TacclOptions& options, double seconds, TacclResult& result)
      : options_(options),
        seconds_(seconds),
        result_(result),
        problem_(
            taccl_problem(collective, sketch.chunks,
                          logical_topology(machine, sketch,
                                           block_bytes(collective, options.bytes) / sketch.chunks,
                                           options.message_us))) {}

  void run(std::vector<Transfer>& transfers, int32_t& chunks) {
    route();
    const double heuristic_us = plan_.order.time_us;
    if (options_.solver != nullptr) improve_routes();
    const Together together = contiguity();
    const ExactTimes times = exact_times(problem_, plan_.order, together);
    for (size_t s = 0; s < plan_.order.sends.size(); s++) {
      const TacclSend& send = plan_.order.sends[s];
      const LogicalLink& link = problem_.topology.links[static_cast<size_t>(send.link)];
      transfers.push_back(
          {problem_.pieces[static_cast<size_t>(send.piece)].id * plan_.order.parts + send.part,
           link.from, link.to, link.path, times.begin_us[s]});
    }
    chunks = problem_.chunks * plan_.order.parts;
    result_.time_us += times.time_us;
    result_.heuristic_us += heuristic_us;
  }

  int parts() const { return plan_.order.parts; }

 private:
  void route() {
    size_t crossings = 0;
    for (int parts = options_.least_parts; parts <= options_.most_parts; parts *= 2) {
      if (crossings * static_cast<size_t>(parts) > kMostSends) break;
      Plan plan;
      plan.routes = greedy_routes(problem_, 1.0 / parts);
      plan.order = best_order(problem_, plan.routes, parts);
      crossings = plan.order.sends.size() / static_cast<size_t>(parts);
      if (plan.better_than(plan_)) plan_ = std::move(plan);
    }
  }

  void improve_routes() {
    const double pipelined = 1.0 / plan_.order.parts;
    const RoutingModel model = routing_model(problem_, plan_.routes, pipelined);
    if (model.linear.columns() > kMostColumns) {
      result_.notes.push_back(
          fmt::format("routing: {} variables are too many for a solver", model.linear.columns()));
      return;
    }
    const Solver::Solution solution = solve("routing", model.linear, model.start);
    if (!solution.improved) return;
    const TacclRoutes routes = routes_of(problem_, model, solution.values);
    for (int parts = options_.least_parts; parts <= options_.most_parts; parts *= 2) {
      Plan plan{routes, best_order(problem_, routes, parts)};
      if (plan.better_than(plan_)) plan_ = std::move(plan);
    }
  }

  Together contiguity() {
    const Together greedy = join_greedily(problem_, plan_.order);
    if (options_.solver == nullptr || joinable(problem_, plan_.order).empty()) return greedy;
    const ContiguityModel model = contiguity_model(problem_, plan_.order, greedy);
    const Solver::Solution solution = solve("contiguity", model.linear, model.start);
    if (!solution.improved) return greedy;
    const Together found = together_of(problem_, plan_.order, model, solution.values);
    const ExactTimes times = exact_times(problem_, plan_.order, found);
    return times.possible && times.time_us < exact_times(problem_, plan_.order, greedy).time_us
               ? found
               : greedy;
  }

  Solver::Solution solve(const char* stage, const LinearModel& model,
                         const std::vector<double>& start) {
    const double before = model.objective(start);
    if (seconds_ < 0.01) return {start, before, false, false, "", 0};
    const Solver::Solution solution = options_.solver->improve(model, start, seconds_);
    seconds_ -= solution.seconds;
    result_.solver_s += solution.seconds;
    result_.notes.push_back(fmt::format("{}: {} variables, {} rows, {} -> {} in {:.2f} s; {}",
                                        stage, model.columns(), model.rows(), before,
                                        solution.objective, solution.seconds, solution.note));
    return solution;
  }

  const TacclOptions& options_;
  double seconds_;  // left for the solver
  TacclResult& result_;
  const TacclProblem problem_;
  Plan plan_;
};

}  // namespace

TacclResult taccl_route(const Machine& machine, const Collective& collective, const Sketch& sketch,
                        const TacclOptions& options) {
  TacclResult result;
  result.routing.collective = collective;
  if (collective.kind != CollectiveKind::kAllReduce) {
    const Machine turned = collective.reduces() ? turned_round(machine) : machine;
    Half half(turned, collective, sketch, options, options.time_limit_s, result);
    half.run(result.routing.transfers, result.routing.chunks);
    result.notes.push_back(fmt::format("{} parts a chunk", half.parts()));
    return result;
  }
  // Both halves must cut blocks alike: the second one follows the first.
  Half gather(machine, collective, sketch, options, options.time_limit_s / 2, result);
  gather.run(result.routing.transfers, result.routing.chunks);
  TacclOptions same = options;
  same.least_parts = same.most_parts = gather.parts();
  Half reduce(turned_round(machine), collective, sketch, same, options.time_limit_s / 2, result);
  reduce.run(result.routing.reduction, result.routing.chunks);
  result.notes.push_back(fmt::format("{} parts a chunk", gather.parts()));
  return result;
}

}  // namespace weft
