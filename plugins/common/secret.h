// The communicator's secret. The library passes it to a plugin per thread (net_abi/extension.h).
#pragma once

#include <optional>

#include "src/base/siphash.h"

namespace weft::net_common {

// This thread's secret; empty if the library has set none.
const std::optional<Secret>& thread_secret();
// nullptr: none from now on.
void use_secret(const unsigned char* secret);

}  // namespace weft::net_common
