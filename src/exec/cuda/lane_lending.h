// Steps whose source NICs may read later than the step runs.
#pragma once

#include <vector>

#include "src/schedule/verify.h"

namespace weft::cuda {

// One per step of a rank, in the order of Program::steps. True: the step passes on one chunk of the
// input or the output, or one that it receives into the output, and nothing writes there
// afterwards. So the data may be sent from there until the call ends.
std::vector<bool> steps_that_lend(const VerifiedSchedule& verified, int rank);

}  // namespace weft::cuda
