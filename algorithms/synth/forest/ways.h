// The ways from rank to rank that lead through no third rank, for engines that choose among all of
// them, not among those that splitting switches off leaves. Inside the forest engine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct Way {
  int32_t to = 0;  // rank
  std::vector<int32_t> links;
};

// Per rank: the shortest ways over each of its links, those over one link side by side. `machine`
// is one in which every walk is allowed.
std::vector<std::vector<Way>> find_ways(const Machine& machine, const std::vector<int>& ranks);

// Per node: the links that leave it, or that reach it, in the order of the machine.
std::vector<std::vector<int32_t>> links_at(const Machine& machine, bool leaving);

}  // namespace weft
