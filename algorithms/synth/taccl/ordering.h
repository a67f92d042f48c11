// Ordering, the heuristic middle of TACCL's pipeline: the order in which pieces cross their links.
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/taccl/problem.h"

namespace weft {

// One crossing of one part of a piece.
struct TacclSend {
  int32_t piece = 0;  // index into TacclProblem::pieces
  int32_t part = 0;   // a piece may be divided into equal parts that take the same path
  int32_t link = 0;
  int32_t parent = -1;  // the send that brings it, -1: the source has it
};

// All sends in an order in which they can begin. On every shared resource they follow this order.
struct TacclOrder {
  int parts = 1;  // per piece
  std::vector<TacclSend> sends;
  std::vector<double> begin_us;  // per send, as early as the order allows
  double time_us = 0;
};

enum class OrderRule {
  kLongestPathFromNow,    // the piece with the longest way to go first
  kShortestPathUntilNow,  // the piece with the shortest way so far first
  kEarliest,              // the piece that can begin first, then the longest way to go
};

TacclOrder order_sends(const TacclProblem& problem, const TacclRoutes& routes, int parts,
                       OrderRule rule);

}  // namespace weft
