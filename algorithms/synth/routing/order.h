// Ordering: when each transfer begins, so that links are never idle while something could cross
// them and what still has far to go crosses first. For every engine. Pure function.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct OrderOptions {
  // Where so many pieces in a row take the same way, the first of all of them go before the second
  // of any, so that links stay equally far.
  int rounds = 1;
  // How often the order is made anew from its end and from there again; the one that takes least
  // counts. For plans in which much waits for each other.
  int returns = 0;
  // With returns: the transfers will run turned round, so the order is made in that direction.
  bool mirrored = false;
};

// Sets begin_us of transfers whose pieces have `piece_bytes` each. A piece crosses links as the
// simulator's messages do; of several that wait for a link the one with the longest way behind it
// goes first. `machine` is the one the links are of: the reversed one for reductions.
void order_transfers(const Machine& machine, double piece_bytes, const OrderOptions& options,
                     std::vector<Transfer>& transfers);

}  // namespace weft
