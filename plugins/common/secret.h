// The communicator's secret, which the library gives to a plugin thread by thread
// (net_abi/extension.h).
#pragma once

#include <optional>

#include "src/base/siphash.h"

namespace weft::net_common {

// Of this thread; nothing where the library has given none.
const std::optional<Secret>& thread_secret();
// nullptr: none from now on.
void use_secret(const unsigned char* secret);

}  // namespace weft::net_common
