// The built-in network inside one process, and connections over it.
#pragma once

#include <memory>
#include <utility>

#include "src/transport/network.h"

namespace weft::test {

// `lends`: it has isend_two(). NICs and plugins of others do not.
std::shared_ptr<Network> loopback_network(bool lends = true);

// The sending and the receiving comm of one connection. Throws if they do not connect.
std::pair<NetComm, NetComm> connect_pair(const std::shared_ptr<Network>& network, int device = 0);

// Sends one message over them. Returns the size that the receiver got. Throws if it is lost.
size_t transfer(const NetComm& sender, const NetComm& receiver, void* from, size_t size, void* to,
                size_t room);

}  // namespace weft::test
