// Inside weave(), third stage: the order of steps in each lane.
#pragma once

#include "algorithms/synth/weave/lanes.h"

namespace weft {

// `at_once`: all messages are received on arrival, not only those that no message waits for.
WovenPlan order_steps(const Pieces& pieces, const WovenMessages& formed, const ChosenLanes& lanes,
                      bool at_once);

}  // namespace weft
