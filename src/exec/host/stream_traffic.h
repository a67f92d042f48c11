// How much an operation will move through each stream to another host: both sides know that
// beforehand.
#pragma once

#include <vector>

#include "src/exec/operation.h"
#include "src/exec/operation_observer.h"

namespace weft::host {

// The operation must have its ports. Streams that it does not use are left out.
std::vector<StreamTraffic> stream_traffic(const Operation& operation);

}  // namespace weft::host
