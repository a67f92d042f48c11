// Whole chunks on paths: every demand sends `chunks` equal chunks from one rank to another, each
// over a path of links and relays, so that the busiest link has as little to carry as possible.
// Chunks that cross crowded links are moved to cheaper paths, where a link's price grows
// exponentially with its load; the same prices, as lengths, prove how far from the optimum the
// result can be.
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
  double least = 0;  // no assignment, fractional ones included, is below this
  double loss() const { return load / least - 1; }
};

// Deterministic. `known_least` is what the caller can prove for one chunk per demand, or 0. Looks
// at no more than about `effort` links (100 million take a second) and takes off what it has looked
// at.
PathAssignment assign_paths(const FlowNetwork& network, const std::vector<Demand>& demands,
                            int chunks, double known_least, int64_t& effort);

}  // namespace weft
