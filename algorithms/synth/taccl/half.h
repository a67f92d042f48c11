// Inside taccl_plans(): one direction of a collective, gathering on a machine (or, for what
// reduces, on the machine turned round).
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

  // Nothing new is begun after the deadline, and the solver ends then. Writes what it did to
  // `result`.
  TacclHalf(const Machine& machine, const Collective& collective, const Sketch& sketch,
            const TacclOptions& options, Clock::time_point deadline, TacclResult& result);

  struct Plan {
    TacclRoutes routes;
    TacclOrder order;
    bool solved = false;
  };
  const std::vector<Plan>& plans() const { return plans_; }
  // By parts; the solver's where there is one and it is wanted. Null: none.
  const Plan* find(int parts, bool solved) const;

  // Contiguity and exact times; returns the time.
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
