// The verbs plugin: NCCL's network ABI over RDMA, InfiniBand and RoCE. exports.cc makes a shared
// object of these tables, libnccl-net-weft-verbs.so.
//
// A connection has a TCP socket, over which the two sides prove themselves (as in the socket
// plugin), agree on rails and notice each other's end; data goes over reliable queue pairs.
// irecv() sends an invitation (where to write, with which keys); isend() writes the data there,
// with an immediate that says what it is. Large messages are cut into stripes over all rails, by
// their rates. connection.h says what happens when a rail fails.
#pragma once

#include "src/transport/net_abi/extension.h"
#include "src/transport/net_abi/v10.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/net_abi/v8.h"

namespace weft::net_verbs {

extern const net_abi::NetV8 kNetV8;
extern const net_abi::NetV9 kNetV9;
extern const net_abi::NetV10 kNetV10;
extern const net_abi::NetV11 kNetV11;
extern const net_abi::NetV12 kNetV12;
extern const net_abi::ExtensionV1 kExtension;

}  // namespace weft::net_verbs
