// A number that is equal for equal machines: same devices and same links. Ids, bus numbers and the
// order of discovery do not matter. It is the key of plan caches.
#pragma once

#include <cstdint>
#include <string>

#include "src/topology/graph/machine.h"

namespace weft {

uint64_t fingerprint(const Machine& machine);
std::string fingerprint_text(const Machine& machine);  // 16 hexadecimal digits

}  // namespace weft
