// NCCL's network plugin ABI, version 9 (NCCL 2.24 and later): sizes are size_t, several NICs can be
// merged into a virtual one, and devices say how much one message may carry.
#pragma once

#include "src/transport/net_abi/common.h"

namespace weft::net_abi {

using VirtualDeviceV9 = VirtualDevice<4>;

struct PropertiesV9 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;  // flush receives even if the GPU does not need it
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  DeviceType device_type;
  int device_version;
  VirtualDeviceV9 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, virtual_device) == 64 &&
              offsetof(PropertiesV9, max_p2p_bytes) == 88);

struct NetV9 {
  static constexpr int kVersion = 9;
  static constexpr const char* kSymbol = "ncclNetPlugin_v9";
  using Properties = PropertiesV9;

  const char* name;
  ncclResult_t (*init)(Logger log);
  Devices devices;
  ncclResult_t (*get_properties)(int dev, PropertiesV9* properties);
  ncclResult_t (*listen)(int dev, void* handle, void** listen_comm);
  ncclResult_t (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dma_buf;
  DeregMr dereg_mr;
  ncclResult_t (*isend)(void* send_comm, void* data, size_t size, int tag, void* mr,
                        void** request);
  ncclResult_t (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mrs,
                        void** request);
  Flush iflush;
  Test test;
  Close close_send, close_recv, close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
  ncclResult_t (*make_virtual_device)(int* dev, VirtualDeviceV9* device);
};
static_assert(sizeof(NetV9) == 20 * sizeof(void*));

}  // namespace weft::net_abi
