// The heuristic router of TACCL's pipeline. It runs without a solver, and gives a solver its start.
#pragma once

#include "algorithms/synth/taccl/problem.h"

namespace weft {

// Repeatedly sends the piece that can first arrive at a useful rank, over links and shared
// resources that earlier sends keep busy. Of equal arrivals it takes the one that brings most ranks
// nearer to the piece. A decision for a piece holds for all alike pieces. A rank is useful if it
// wants the piece, or is nearer to a rank that wants it than all ranks that have it. `pipelined`: a
// piece is passed on after this part of it has arrived (1: the whole).
TacclRoutes greedy_routes(const TacclProblem& problem, double pipelined = 1);

}  // namespace weft
