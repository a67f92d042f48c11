// Inside weave(), second stage: which FIFOs share a lane, and what is passed on in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/synth/weave/messages.h"

namespace weft {

struct ChosenLanes {
  std::vector<size_t> count;     // per rank; lane 0 has what the rank has
  std::vector<int32_t> in, out;  // per FIFO: the lane that receives, and the one that sends
};

// Sets WovenMessage::fused and WovenStart::lane.
ChosenLanes choose_lanes(WovenMessages& formed, size_t ranks, const LaneOptions& options);

}  // namespace weft
