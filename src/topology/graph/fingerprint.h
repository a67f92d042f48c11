// A number that is equal for equal machines: same devices, same links, whatever their ids, bus
// numbers or the order in which they were found. Caches of plans are keyed by it.
#pragma once

#include <cstdint>
#include <string>

#include "src/topology/graph/machine.h"

namespace weft {

uint64_t fingerprint(const Machine& machine);
std::string fingerprint_text(const Machine& machine);  // 16 hexadecimal digits

}  // namespace weft
