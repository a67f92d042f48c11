// The greedy core of the latency engine: every piece races to every rank. It repeatedly fixes the
// delivery that can complete first over the links in their current state. Ties go to the piece that
// the fewest ranks of the host have. A rank that has received a piece passes it on. So small pieces
// go straight to all ranks, over slow links too. Large pieces cross a slow link once and are passed
// on behind it. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/routing/hops.h"

namespace weft {

struct RaceRules {
  // A piece enters a host once; the host's ranks pass it on among themselves.
  bool once_per_host = false;
  // A piece leaves its first rank once within the host; other ranks pass it on. For one root.
  bool once_from_origin = false;
};

struct Delivery {
  int32_t piece = 0, hop = 0;
  double begin_us = 0, arrive_us = 0;
};

struct Timetable {
  // False if the rules leave out a rank: one that the other ranks of its host cannot reach.
  bool complete = true;
  std::vector<Delivery> deliveries;  // in the order in which they were fixed
  double end_us = 0;
  double busiest_us = 0;  // busy time of the busiest link
  int64_t looks = 0;      // the work: pieces considered for a hop
};

// Piece p starts at rank origin[p] and must reach all ranks; all pieces have the same size.
Timetable race(const HopGraph& graph, const std::vector<int32_t>& origin, double piece_bytes,
               const RaceRules& rules);

}  // namespace weft
