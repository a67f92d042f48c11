// Advice where ranks should sit: a pipeline or a ring of work laid over a machine, neighbours near
// each other, and the ranks that talk to another host beside that host's NIC. Pure functions.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"
#include "src/topology/graph/paths.h"

namespace weft {

enum class WorkPattern { kPipeline, kCycle };

struct PlacedRank {
  int gpu = -1;  // node of the machine
  // How it reaches the next rank (of a ring's last rank: the first). kNone at a pipeline's end.
  PathClass way = PathClass::kNone;
  double gbps = 0, us = 0;
};

// Rank r's place is entry r. Hosts are filled one after the other. Throws Error(ncclInvalidUsage)
// where there are fewer GPUs than ranks.
std::vector<PlacedRank> place_ranks(const Machine& machine, int nranks, WorkPattern pattern);

}  // namespace weft
