// The symbols by which NCCL, and Weft, find the plugin in its shared object.
#include "plugins/net_socket/plugin.h"

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT const weft::net_abi::NetV8 ncclNetPlugin_v8 = weft::net_socket::kNetV8;
WEFT_EXPORT const weft::net_abi::NetV9 ncclNetPlugin_v9 = weft::net_socket::kNetV9;
WEFT_EXPORT const weft::net_abi::NetV10 ncclNetPlugin_v10 = weft::net_socket::kNetV10;
WEFT_EXPORT const weft::net_abi::NetV11 ncclNetPlugin_v11 = weft::net_socket::kNetV11;
WEFT_EXPORT const weft::net_abi::NetV12 ncclNetPlugin_v12 = weft::net_socket::kNetV12;
WEFT_EXPORT const weft::net_abi::ExtensionV4 weftNetExtension_v4 = weft::net_socket::kExtension;
