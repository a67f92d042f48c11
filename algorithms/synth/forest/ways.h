// The paths from rank to rank that pass no third rank. For engines that choose among all of them,
// not only among those left after switches are split off. Inside the forest engine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct Way {
  int32_t to = 0;  // rank
  std::vector<int32_t> links;
};

// Per rank: the shortest paths over each of its links; the paths over one link are contiguous.
// `machine` is one in which every walk is allowed.
std::vector<std::vector<Way>> find_ways(const Machine& machine, const std::vector<int>& ranks);

// Per node: the links that leave it, or that enter it, in the machine's order.
std::vector<std::vector<int32_t>> links_at(const Machine& machine, bool leaving);

}  // namespace weft
