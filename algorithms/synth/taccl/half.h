// Inside taccl_plans(): one direction of a collective. It gathers on a machine, or for reductions
// on the reversed machine.
#pragma once

#include <chrono>
#include <vector>

#include "algorithms/synth/taccl/contiguity.h"
#include "algorithms/synth/taccl/ordering.h"
#include "algorithms/synth/taccl/problem.h"
#include "algorithms/synth/taccl/taccl.h"

namespace weft {

class TacclHalf {
 public:
  using Clock = std::chrono::steady_clock;

  // After the deadline no new work begins, and the solver ends. Logs its work in `result`.
  TacclHalf(const Machine& machine, const Collective& collective, const Sketch& sketch,
            const TacclOptions& options, Clock::time_point deadline, TacclResult& result);

  struct Plan {
    TacclRoutes routes;
    TacclOrder order;
    bool solved = false;
  };
  const std::vector<Plan>& plans() const { return plans_; }
  // The plan with this many parts. If `solved`, the solver's plan if there is one. Null: none.
  const Plan* find(int parts, bool solved) const;

  // Sets contiguity and exact times; returns the time.
  double finish(const Plan& plan, std::vector<Transfer>& transfers);
  int chunks() const { return problem_.chunks; }

 private:
  void route();
  void improve_routes();
  Together contiguity(const TacclOrder& order);
  void add(const TacclRoutes& routes, int parts, bool solved);
  double seconds_left() const;
  Solver::Solution solve(const char* stage, const LinearModel& model,
                         const std::vector<double>& start);

  const TacclOptions& options_;
  const Clock::time_point deadline_;
  TacclResult& result_;
  const TacclProblem problem_;
  const double chunk_bytes_;
  std::vector<Plan> plans_;
};

}  // namespace weft
