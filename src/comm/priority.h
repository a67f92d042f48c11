// WEFT_PRIORITY: the class of a communicator.
#pragma once

#include <string_view>

#include "src/exec/host/turns.h"

namespace weft {

// The class of a communicator of this name (may be empty). The parts of the variable have ';'
// between them; the first that fits counts. "moe/high;low": those called moe are high, all others
// are low. Nothing fits: normal. Throws Error(ncclInvalidUsage).
host::Priority priority_for(std::string_view variable, std::string_view communicator);

}  // namespace weft
