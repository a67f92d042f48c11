// One question of points.h: is there a schedule of so many steps and rounds?
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

// Sends in order of their steps, or nothing if none were found. What a rank receives in a step is a
// matching of pieces and incoming links, so the last step is decided exactly; for the steps before
// it pieces that few have go first, and attempt by attempt those that were missing in the end.
// Deterministic.
std::optional<std::vector<StepSend>> find_steps(const StepProblem& problem, int steps, int rounds);

}  // namespace weft
