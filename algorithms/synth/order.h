// Ordering: when each transfer begins, so that links are never idle while something could cross
// them and what still has far to go crosses first. For every engine. Pure function.
#pragma once

#include "algorithms/synth/transfers.h"
#include "src/topology/machine.h"

namespace weft {

// Sets begin_us of transfers whose pieces have `piece_bytes` each. A transfer starts when its piece
// is there and all its links are free, which is how a message crosses them; of several the one
// with the longest way behind it starts first. `machine` is the one the links are of: the reversed
// one for reductions.
void order_transfers(const Machine& machine, double piece_bytes, std::vector<Transfer>& transfers);

}  // namespace weft
