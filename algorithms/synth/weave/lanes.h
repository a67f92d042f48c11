// Inside weave(), second stage: which FIFOs share a lane, and which messages one step receives and
// passes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/synth/weave/messages.h"

namespace weft {

struct ChosenLanes {
  std::vector<size_t> count;     // per rank; lane 0 has the rank's own pieces
  std::vector<int32_t> in, out;  // per FIFO: the receiving lane, and the sending lane
};

// Sets WovenMessage::fused and WovenStart::lane.
ChosenLanes choose_lanes(WovenMessages& formed, size_t ranks, const LaneOptions& options);

}  // namespace weft
