// The communicator's secret and its WEFT_WIRE. The library passes them to a plugin per thread
// (net_abi/extension.h).
#pragma once

#include <optional>

#include "src/base/seal.h"

namespace weft::net_common {

// This thread's secret; empty if the library has set none.
const std::optional<Secret>& thread_secret();
// nullptr: none from now on.
void use_secret(const unsigned char* secret);

// Empty if the library has not said.
const std::optional<Wire>& thread_wire();
// Negative: none from now on.
void use_wire(int wire);

}  // namespace weft::net_common
