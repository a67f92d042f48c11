// Answers one question of points.h: is there a schedule of this many steps and rounds?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/synth/routing/hops.h"

namespace weft {

struct StepProblem {
  const HopGraph& graph;        // no two hops share a link
  std::vector<int> width;       // per hop, chunks per round
  std::vector<int32_t> origin;  // per piece
};

struct StepSend {
  int32_t piece = 0, hop = 0, step = 0;
};

// Sends in order of their steps, or nothing if none were found. The sends to a rank in a step are a
// matching of pieces and incoming links, so the last step is solved exactly. In earlier steps rare
// pieces go first. Each attempt gives priority to pieces that were missing at the end of the last
// one. Deterministic.
std::optional<std::vector<StepSend>> find_steps(const StepProblem& problem, int steps, int rounds);

}  // namespace weft
