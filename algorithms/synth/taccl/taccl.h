// TACCL's pipeline from end to end: sketch and machine -> logical topology -> routing -> ordering
// -> contiguity and exact times -> Routing. With a solver the routing and contiguity MILPs improve
// on what the heuristics found; without one these stand. Any thread may call it.
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
  double time_limit_s = 10;              // for all of it; the solver gets what heuristics leave
  int most_parts = 64;                   // how finely a chunk of the sketch may be cut
  // What a message costs a link between hosts besides its bytes; 0 as in the simulator.
  double message_us = 0;
};

struct TacclPlan {
  Routing routing;
  double time_us = 0;   // in the model of the last stage
  int parts = 1;        // that a chunk of the sketch is cut into
  bool solved = false;  // the solver's routes, not the heuristic's
};

struct TacclResult {
  // Those of fewest parts first, of equally many the faster one; those that are much slower in
  // their model than the fastest are left out. At least one.
  std::vector<TacclPlan> plans;
  double heuristic_us = 0;         // the best time before the solver
  double solver_s = 0;             // seconds spent in the solver
  std::vector<std::string> notes;  // what the solver said, a line each
};

// all_gather, reduce_scatter, all_reduce, broadcast, reduce, alltoall, gather, scatter. Never worse
// in its model than the heuristics. The same input gives the same result, unless the time limit
// stops the solver. Throws Error(ncclInvalidArgument) in a line where sketch and machine do not
// fit.
TacclResult taccl_plans(const Machine& machine, const Collective& collective, const Sketch& sketch,
                        const TacclOptions& options);

}  // namespace weft
