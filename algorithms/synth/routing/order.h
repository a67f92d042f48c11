// Ordering: sets when each transfer begins. Links are never idle while a transfer could cross them,
// and transfers with the longest way to go cross first. For every engine. Pure function.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct OrderOptions {
  // Number of consecutive pieces that take the same path. The first piece of each path goes before
  // the second of any, so that links progress equally.
  int rounds = 1;
  // How often the order is remade backwards from its end and forwards again. The shortest wins. For
  // plans with many waits.
  int returns = 0;
  // With returns: the transfers will run reversed, so the order is made in that direction.
  bool mirrored = false;
};

// Sets begin_us of transfers whose pieces have `piece_bytes` each. A piece crosses links like a
// message of the simulator. Of several pieces that wait for a link, the one with the longest way to
// go is first. `machine` has the links: the reversed machine for reductions.
void order_transfers(const Machine& machine, double piece_bytes, const OrderOptions& options,
                     std::vector<Transfer>& transfers);

}  // namespace weft
