// Random transfers that some engine could have chosen.
#pragma once

#include "algorithms/synth/routing/transfers.h"
#include "tests/support/sampling.h"

namespace weft::test {

// Every piece takes a random tree, with relays that do not need it; with `together` neighbouring
// pieces sometimes take the same one at the same time.
Routing random_routing(const Collective& collective, int chunks, bool together, Random& random);

}  // namespace weft::test
