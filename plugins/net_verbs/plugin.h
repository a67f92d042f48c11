// The verbs plugin: NCCL's network ABI over RDMA (InfiniBand and RoCE). exports.cc puts these
// tables into a shared object, libnccl-net-weft-verbs.so.
//
// A connection has a TCP control socket. Over it the two sides authenticate each other (as in the
// socket plugin), agree on rails, and notice when the peer ends. Data goes over reliable queue
// pairs. irecv() sends an invitation: an address and keys. isend() writes the data there, with an
// immediate that identifies it. Large messages are striped over all rails, by their rates.
// connection.h describes rail failures.
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
extern const net_abi::ExtensionV4 kExtension;

}  // namespace weft::net_verbs
