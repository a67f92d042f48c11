// The built-in network inside one process, and connections over it.
#pragma once

#include <memory>
#include <utility>

#include "src/transport/network.h"

namespace weft::test {

std::shared_ptr<Network> loopback_network();

// A sending and a receiving comm of one connection; throws when they do not come together.
std::pair<NetComm, NetComm> connect_pair(const std::shared_ptr<Network>& network);

// One message over them; the size that the receiver was told. Throws when it does not arrive.
size_t transfer(const NetComm& sender, const NetComm& receiver, void* from, size_t size, void* to,
                size_t room);

}  // namespace weft::test
