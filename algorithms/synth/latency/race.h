// The greedy heart of the latency engine: every piece races to every rank. Again and again the
// delivery that can be complete first is fixed, over the links as they are then (of equals that of
// the piece that fewest ranks of the host have), and whoever has got a piece passes it on. Small
// pieces so go straight to everybody, over slow links too; large ones cross a slow link once and
// are passed on behind it. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/routing/hops.h"

namespace weft {

struct RaceRules {
  // A piece enters a host once; its ranks pass it on among themselves.
  bool once_per_host = false;
  // Within its host a piece leaves the rank where it begins once; others pass it on. For one root.
  bool once_from_origin = false;
};

struct Delivery {
  int32_t piece = 0, hop = 0;
  double begin_us = 0, arrive_us = 0;
};

struct Timetable {
  // False where the rules leave some rank out: one whose host's others do not reach it.
  bool complete = true;
  std::vector<Delivery> deliveries;  // in the order in which they were fixed
  double end_us = 0;
  double busiest_us = 0;  // how long the busiest link is at work
  int64_t looks = 0;      // what it took: pieces that were considered for a hop
};

// Piece p starts at rank origin[p] and must reach all ranks; all pieces have the same size.
Timetable race(const HopGraph& graph, const std::vector<int32_t>& origin, double piece_bytes,
               const RaceRules& rules);

}  // namespace weft
