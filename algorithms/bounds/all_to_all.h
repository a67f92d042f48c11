// The flow bound for all-to-all. Every pair of ranks exchanges 1/N of the array, over as many
// routes as it likes: a maximum concurrent flow. Its dual asks for lengths of the links: the
// demands need at least sum(distance) link-length-bytes, the machine carries sum(bandwidth *
// length) a second. Any lengths give a bound; the best ones, a linear program, give the optimum.
#pragma once

#include "algorithms/bounds/bounds.h"

namespace weft {

// Solves the program where symmetry leaves it small enough (every machine of equal hosts, and any
// machine of up to about 20 GPUs); otherwise improves lengths for a fixed number of rounds, tries
// the cuts that they point at, and says that the bound is not exact.
Bound all_to_all_bound(const Machine& machine, int nranks);

}  // namespace weft
