// What the kernel says about a peer's process, where it can be seen from here.
#pragma once

#include <string>

#include "src/comm/peer_info.h"

namespace weft {

// A number of this process's pid namespace; 0: unknown.
uint32_t pid_namespace();

// "; its process (pid 7) is stopped", or empty: it runs, or is on another machine.
std::string stopped_in_words(const PeerInfo& mine, const PeerInfo& peer);

}  // namespace weft
