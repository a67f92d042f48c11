// Advises which rank to put on which GPU, for a pipeline or a ring of work. Neighbours are near
// each other. Ranks that talk to another host are near their host's NIC. Pure functions.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"
#include "src/topology/graph/paths.h"

namespace weft {

enum class WorkPattern { kPipeline, kCycle };

struct PlacedRank {
  int gpu = -1;  // node of the machine
  // The path to the next rank; a ring's last rank goes to the first. kNone at a pipeline's end.
  PathClass way = PathClass::kNone;
  double gbps = 0, us = 0;
};

// Entry r is rank r's place. Fills one host after the other. Throws Error(ncclInvalidUsage) if
// there are fewer GPUs than ranks.
std::vector<PlacedRank> place_ranks(const Machine& machine, int nranks, WorkPattern pattern);

}  // namespace weft
