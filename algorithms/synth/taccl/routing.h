// The routing MILP of TACCL's pipeline: which links every piece crosses. All links work at once,
// and no piece waits for another (bandwidth counts only in sums). Symmetry leaves one set of
// variables for all alike pieces.
#pragma once

#include <string>

#include "algorithms/synth/taccl/linear_model.h"
#include "algorithms/synth/taccl/problem.h"
#include "algorithms/synth/taccl/solver.h"

namespace weft {

struct RoutingModel {
  LinearModel linear;
  std::vector<double> start;                     // the given routes as a solution
  std::vector<std::vector<int32_t>> sent;        // [leader][link]: column, -1: no candidate
  std::vector<std::vector<int32_t>> arrival_us;  // [leader][rank]: column, -1: never there
  int32_t time_us = 0;                           // column
};

// `routes` must be alike for alike pieces. `pipelined` as in greedy.h.
RoutingModel routing_model(const TacclProblem& problem, const TacclRoutes& routes,
                           double pipelined = 1);

// Trees from a solution of the model.
TacclRoutes routes_of(const TacclProblem& problem, const RoutingModel& model,
                      const std::vector<double>& values);

}  // namespace weft
