// NCCL's network plugin ABI, version 11 (NCCL 2.28 and later): every communicator has its own
// context, from init() to finalize().
#pragma once

#include "src/transport/net_abi/v9.h"

namespace weft::net_abi {

using VirtualDeviceV11 = VirtualDeviceV9;

struct PropertiesV11 {
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
  VirtualDeviceV11 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request;
};
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, max_multi_request) == 104);

struct CommAttributes {
  int32_t max_concurrent_peers, min_concurrent_peers, max_flows_per_peer, min_flows_per_peer;
};
struct NetAttributes {
  CommAttributes send, receive;
  uint32_t op, algorithm, protocol;
};
static_assert(sizeof(NetAttributes) == 44);

// Versions 11 and 12 differ only in their properties and virtual devices.
template <typename PropertiesType, typename VirtualDeviceType>
struct NetWithContext {
  using Properties = PropertiesType;

  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger log,
                       ProfilerCallback profiler);
  Devices devices;
  ncclResult_t (*get_properties)(int dev, PropertiesType* properties);
  ncclResult_t (*listen)(void* context, int dev, void* handle, void** listen_comm);
  ncclResult_t (*connect)(void* context, int dev, void* handle, void** send_comm,
                          DeviceHandle** device);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dma_buf;
  DeregMr dereg_mr;
  ncclResult_t (*isend)(void* send_comm, void* data, size_t size, int tag, void* mr, void* profiled,
                        void** request);
  ncclResult_t (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mrs,
                        void** profiled, void** request);
  Flush iflush;
  Test test;
  Close close_send, close_recv, close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
  ncclResult_t (*make_virtual_device)(int* dev, VirtualDeviceType* device);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*set_attributes)(void* context, NetAttributes* attributes);
};

struct NetV11 : NetWithContext<PropertiesV11, VirtualDeviceV11> {
  static constexpr int kVersion = 11;
  static constexpr const char* kSymbol = "ncclNetPlugin_v11";
};
static_assert(sizeof(NetV11) == 22 * sizeof(void*));

}  // namespace weft::net_abi
