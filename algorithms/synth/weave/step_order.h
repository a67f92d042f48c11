// Inside weave(), third stage: in which order each lane does its work.
#pragma once

#include "algorithms/synth/weave/lanes.h"

namespace weft {

// `at_once`: all messages are received as they come, not only those that nothing waits for.
WovenPlan order_steps(const Pieces& pieces, const WovenMessages& formed, const ChosenLanes& lanes,
                      bool at_once);

}  // namespace weft
