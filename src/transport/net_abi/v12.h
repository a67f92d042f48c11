// NCCL's network plugin ABI, version 12 (NCCL 2.30 and later): eight NICs in a virtual one, rails
// and planes.
#pragma once

#include "src/transport/net_abi/v11.h"

namespace weft::net_abi {

using VirtualDeviceV12 = VirtualDevice<8>;

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  DeviceType device_type;
  int device_version;
  VirtualDeviceV12 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request;
  int16_t rail;   // kUndefined: not known
  int16_t plane;  // kUndefined: not known
};
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, max_p2p_bytes) == 104 &&
              offsetof(PropertiesV12, rail) == 124);

struct NetV12 : NetWithContext<PropertiesV12, VirtualDeviceV12> {
  static constexpr int kVersion = 12;
  static constexpr const char* kSymbol = "ncclNetPlugin_v12";
};
static_assert(sizeof(NetV12) == 22 * sizeof(void*));

}  // namespace weft::net_abi
