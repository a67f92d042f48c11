// The socket plugin: NCCL's network ABI over TCP. The library compiles in these tables as its
// default network. exports.cc puts them into a shared object for other users of the ABI.
#pragma once

#include "src/transport/net_abi/extension.h"
#include "src/transport/net_abi/v10.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/net_abi/v8.h"

namespace weft::net_socket {

extern const net_abi::NetV8 kNetV8;
extern const net_abi::NetV9 kNetV9;
extern const net_abi::NetV10 kNetV10;
extern const net_abi::NetV11 kNetV11;
extern const net_abi::NetV12 kNetV12;
extern const net_abi::ExtensionV4 kExtension;

}  // namespace weft::net_socket
