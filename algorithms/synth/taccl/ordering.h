// Ordering, the heuristic middle of TACCL's pipeline: given what crosses which link, in which order
// everything goes. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/taccl/problem.h"

namespace weft {

// One crossing of one part of a piece.
struct TacclSend {
  int32_t piece = 0;  // index into TacclProblem::pieces
  int32_t part = 0;   // pieces may be cut into equal parts that travel the same way
  int32_t link = 0;
  int32_t parent = -1;  // the send that brings it, -1: the source has it
};

// All sends in an order in which they can be begun; on everything that is shared they follow each
// other in this order.
struct TacclOrder {
  int parts = 1;  // per piece
  std::vector<TacclSend> sends;
  std::vector<double> begin_us;  // per send, when all go as early as the order lets them
  double time_us = 0;
};

enum class OrderRule {
  kLongestPathFromNow,    // the piece that has farthest to go first
  kShortestPathUntilNow,  // the piece that has come least far first
  kEarliest,              // what can begin first, then what has farthest to go
};

TacclOrder order_sends(const TacclProblem& problem, const TacclRoutes& routes, int parts,
                       OrderRule rule);

}  // namespace weft
