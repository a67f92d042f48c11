// The traffic of an operation on each stream to another host. Both sides know it in advance.
#pragma once

#include <vector>

#include "src/exec/operation.h"
#include "src/exec/operation_observer.h"

namespace weft::host {

// The operation must have its ports. Unused streams are left out.
std::vector<StreamTraffic> stream_traffic(const Operation& operation);

}  // namespace weft::host
