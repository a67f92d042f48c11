// Random transfers, as an engine could have chosen them.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "tests/support/sampling.h"

namespace weft::test {

// Every piece takes a random tree, with relays that do not need the piece. With `together`,
// neighbouring pieces sometimes take the same tree at the same time.
Routing random_routing(const Collective& collective, int chunks, bool together, Random& random);

}  // namespace weft::test
