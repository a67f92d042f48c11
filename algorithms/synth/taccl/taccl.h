// TACCL's whole pipeline: sketch and machine -> logical topology -> routing -> ordering ->
// contiguity and exact times -> Routing. With a solver, the routing and contiguity MILPs improve
// the heuristics' result. Any thread may call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "algorithms/synth/taccl/sketch.h"
#include "algorithms/synth/taccl/solver.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct TacclOptions {
  double bytes = 1 << 20;                // of the whole array, as in nccl-tests
  std::shared_ptr<const Solver> solver;  // null: heuristics only
  double time_limit_s = 10;              // for the whole pipeline; the solver gets the time that
                                         // heuristics leave
  int most_parts = 64;                   // most parts of a chunk of the sketch
  // How long a message keeps a link between hosts busy besides its bytes; 0 as in the simulator.
  double message_us = 0;
};

struct TacclPlan {
  Routing routing;
  double time_us = 0;   // in the model of the last stage
  int parts = 1;        // of a chunk of the sketch
  bool solved = false;  // routes are the solver's, not the heuristics'
};

struct TacclResult {
  // Fewest parts first; of equally many, the faster one. Plans that are much slower in their model
  // than the fastest are left out. At least one.
  std::vector<TacclPlan> plans;
  double heuristic_us = 0;         // the best time before the solver
  double solver_s = 0;             // seconds spent in the solver
  std::vector<std::string> notes;  // the solver's messages, one line each
};

// all_gather, reduce_scatter, all_reduce, broadcast, reduce, alltoall, gather, scatter. Never worse
// in its model than the heuristics. Deterministic, unless the time limit stops the solver. Throws
// Error(ncclInvalidArgument) in one line if sketch and machine do not match.
TacclResult taccl_plans(const Machine& machine, const Collective& collective, const Sketch& sketch,
                        const TacclOptions& options);

}  // namespace weft
