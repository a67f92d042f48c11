// What this process's communicators do, for `weft status`.
#pragma once

#include <string>

namespace weft {

// A JSON object: this process, and every communicator with its current or last operation.
std::string status_json();

// From now on processes of the same user can ask for it (Acceptor::serve_status()).
void serve_status();

}  // namespace weft
