// See half.h.
#include "algorithms/synth/taccl/half.h"

#include <algorithm>

#include "algorithms/synth/taccl/greedy.h"
#include "algorithms/synth/taccl/logical_topology.h"
#include "algorithms/synth/taccl/routing.h"
#include "src/base/error.h"

namespace weft {
namespace {

// Limits of dividing into parts: finer parts do not help beyond this many sends, or below this
// size.
constexpr size_t kMostSends = 40000;
constexpr double kLeastPartBytes = 512;
// With more columns a solver makes no progress.
constexpr int32_t kMostColumns = 100000;

double chunk_bytes(const Collective& c, const Sketch& sketch, double bytes) {
  const bool whole = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce;
  return (whole ? bytes : bytes / c.nranks) / sketch.chunks;
}

}  // namespace

TacclHalf::TacclHalf(const Machine& machine, const Collective& collective, const Sketch& sketch,
                     const TacclOptions& options, Clock::time_point deadline, TacclResult& result)
    : options_(options),
      deadline_(deadline),
      result_(result),
      problem_(taccl_problem(
          collective, sketch.chunks,
          logical_topology(machine, sketch, chunk_bytes(collective, sketch, options.bytes),
                           options.message_us))),
      chunk_bytes_(chunk_bytes(collective, sketch, options.bytes)) {
  route();
  if (options_.solver != nullptr) improve_routes();
}

const TacclHalf::Plan* TacclHalf::find(int parts, bool solved) const {
  const Plan* found = nullptr;
  for (const Plan& plan : plans_)
    if (plan.order.parts == parts && (!plan.solved || solved)) found = &plan;
  return found;
}

// Adds the best order of these routes with this many parts.
void TacclHalf::add(const TacclRoutes& routes, int parts, bool solved) {
  Plan best;
  for (const OrderRule rule :
       {OrderRule::kLongestPathFromNow, OrderRule::kShortestPathUntilNow, OrderRule::kEarliest}) {
    TacclOrder order = order_sends(problem_, routes, parts, rule);
    if (best.order.sends.empty() || order.time_us < best.order.time_us * (1 - 1e-9))
      best.order = std::move(order);
  }
  best.routes = routes;
  best.solved = solved;
  plans_.push_back(std::move(best));
}

void TacclHalf::route() {
  for (int parts = 1; parts <= options_.most_parts; parts *= 2) {
    if (parts > 1 && (chunk_bytes_ / parts < kLeastPartBytes ||
                      plans_.back().order.sends.size() * 2 > kMostSends))
      break;
    add(greedy_routes(problem_, 1.0 / parts), parts, false);
  }
}

void TacclHalf::improve_routes() {
  const auto best = std::min_element(
      plans_.begin(), plans_.end(),
      [](const Plan& a, const Plan& b) { return a.order.time_us < b.order.time_us * 0.999; });
  const RoutingModel model = routing_model(problem_, best->routes, 1.0 / best->order.parts);
  if (model.linear.columns() > kMostColumns) {
    result_.notes.push_back(
        fmt::format("routing: {} variables are too many for a solver", model.linear.columns()));
    return;
  }
  const Solver::Solution solution = solve("routing", model.linear, model.start);
  if (!solution.improved) return;
  const TacclRoutes routes = routes_of(problem_, model, solution.values);
  const size_t heuristics = plans_.size();
  for (size_t i = 0; i < heuristics && (i == 0 || seconds_left() > 0); i++) {
    add(routes, plans_[i].order.parts, true);
    if (plans_.back().order.time_us >= plans_[i].order.time_us) plans_.pop_back();
  }
}

Together TacclHalf::contiguity(const TacclOrder& order) {
  Together greedy = join_greedily(problem_, order);
  if (options_.solver == nullptr || joinable(problem_, order).empty()) return greedy;
  const ContiguityModel model = contiguity_model(problem_, order, greedy);
  const Solver::Solution solution = solve("contiguity", model.linear, model.start);
  if (!solution.improved) return greedy;
  Together found = together_of(problem_, order, model, solution.values);
  const ExactTimes times = exact_times(problem_, order, found);
  const bool better =
      times.possible && times.time_us < exact_times(problem_, order, greedy).time_us;
  return better ? found : greedy;
}

double TacclHalf::finish(const Plan& plan, std::vector<Transfer>& transfers) {
  const TacclOrder& order = plan.order;
  const ExactTimes times = exact_times(problem_, order, contiguity(order));
  for (size_t s = 0; s < order.sends.size(); s++) {
    const TacclSend& send = order.sends[s];
    const LogicalLink& link = problem_.topology.links[static_cast<size_t>(send.link)];
    transfers.push_back(
        {problem_.pieces[static_cast<size_t>(send.piece)].id * order.parts + send.part, link.from,
         link.to, link.path, times.begin_us[s]});
  }
  return times.time_us;
}

double TacclHalf::seconds_left() const {
  return std::chrono::duration<double>(deadline_ - Clock::now()).count();
}

Solver::Solution TacclHalf::solve(const char* stage, const LinearModel& model,
                                  const std::vector<double>& start) {
  const double before = model.objective(start);
  const double seconds = seconds_left();
  if (seconds < 0.02) {
    result_.notes.push_back(fmt::format("{}: no time left for the solver", stage));
    return {start, before, false, false, "", 0};
  }
  Solver::Solution solution = options_.solver->improve(model, start, seconds);
  result_.solver_s += solution.seconds;
  result_.notes.push_back(fmt::format("{}: {} variables, {} rows, {:.6g} -> {:.6g} in {:.2f} s: {}",
                                      stage, model.columns(), model.rows(), before,
                                      solution.objective, solution.seconds, solution.note));
  return solution;
}

}  // namespace weft
