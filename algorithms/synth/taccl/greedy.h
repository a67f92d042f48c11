// The heuristic router of TACCL's pipeline: what runs without a solver, and what a solver starts
// from.
#pragma once

#include "algorithms/synth/taccl/problem.h"

namespace weft {

// Sends, again and again, the piece that can arrive somewhere useful first, over links and shared
// things that are busy with what was sent before; of those that arrive together the one that
// brings most ranks nearer to it. What is decided for a piece is decided for all that are alike.
// A rank is useful if it wants the piece or is nearer to one who does than all that have it.
// `pipelined`: pieces are passed on after a part of this size of them has arrived (1: the whole).
TacclRoutes greedy_routes(const TacclProblem& problem, double pipelined = 1);

}  // namespace weft
