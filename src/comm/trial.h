// Times an all_reduce of a communicator in host mode, where init must choose between plans.
#pragma once

#include <cstddef>

namespace weft {

class Communicator;

// Seconds of the fastest of a few calls, by the plan that the communicator has now. Collective.
// Throws Error if a call fails.
double trial_seconds(Communicator& communicator, size_t floats);

}  // namespace weft
