// The built-in network inside one process, and connections over it.
#pragma once

#include <memory>
#include <utility>

#include "src/transport/network.h"

namespace weft::test {

std::shared_ptr<Network> loopback_network();

// A sending and a receiving comm of one connection; throws when they do not come together.
std::pair<NetComm, NetComm> connect_pair(const std::shared_ptr<Network>& network);

}  // namespace weft::test
