// The cases of a conformance run: a fixed core, and random samples beyond it.
#pragma once

#include <vector>

#include "tests/support/case.h"

namespace weft::test {

// The numbers of ranks that the suite covers.
const std::vector<int>& rank_counts();

// Every operation x type x operator once; every operation x awkward count x placement; every root.
// Under a sanitizer a third of the first part.
std::vector<Case> core_cases(int nranks);

// A smaller core for modes where a call costs more: every operation x placement at three counts.
std::vector<Case> brief_cases(int nranks);

// Random points of the whole space, from `seed`; no buffer of a rank exceeds a few MiB.
std::vector<Case> random_cases(int nranks, int samples, uint64_t seed);

}  // namespace weft::test
