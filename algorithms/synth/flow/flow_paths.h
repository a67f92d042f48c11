// Whole chunks on paths. Every demand sends `chunks` equal chunks from one rank to another, each
// over a path of links and relays. The busiest link should carry as little as possible. Chunks on
// crowded links move to cheaper paths; a link's price grows exponentially with its load. The same
// prices, as lengths, prove how far the result can be from the optimum.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/flow/flow_network.h"

namespace weft {

struct Demand {
  int32_t from = 0, to = 0;  // ranks
};

struct PathAssignment {
  int chunks = 1;                           // per demand
  std::vector<std::vector<int32_t>> paths;  // demand * chunks + chunk: links
  double load = 0;                          // of the busiest link: chunks per GB/s
  double least = 0;  // no assignment, not even a fractional one, is below this
  double loss() const { return load / least - 1; }
};

// Deterministic. `known_least` is what the caller can prove for one chunk per demand, or 0. Visits
// about `effort` links at most (100 million take a second) and subtracts them from `effort`.
PathAssignment assign_paths(const FlowNetwork& network, const std::vector<Demand>& demands,
                            int chunks, double known_least, int64_t& effort);

}  // namespace weft
