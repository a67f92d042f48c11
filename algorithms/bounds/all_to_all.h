// The flow bound for all-to-all. Every pair of ranks exchanges 1/N of the array, over any number of
// routes: a maximum concurrent flow. Its dual assigns a length to every link. The demands need at
// least sum(distance) link-length-bytes, and the machine carries sum(bandwidth * length) a second.
// Any lengths give a bound. The best lengths, from a linear program, give the optimum.
#pragma once

#include "algorithms/bounds/bounds.h"

namespace weft {

// Solves the linear program if symmetry makes it small enough: for every machine of equal hosts,
// and any machine of up to about 20 GPUs. Otherwise it improves lengths for a fixed number of
// rounds and tries the cuts that they suggest. Then the bound is not exact, and it says so.
Bound all_to_all_bound(const Machine& machine, int nranks);

}  // namespace weft
