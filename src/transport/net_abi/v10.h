// NCCL's network plugin ABI, version 10 (NCCL 2.26 and later): a profiler callback, and a traffic
// class at connect().
#pragma once

#include "src/transport/net_abi/v9.h"

namespace weft::net_abi {

using PropertiesV10 = PropertiesV9;
using VirtualDeviceV10 = VirtualDeviceV9;

struct NetV10 {
  static constexpr int kVersion = 10;
  static constexpr const char* kSymbol = "ncclNetPlugin_v10";
  using Properties = PropertiesV10;

  const char* name;
  ncclResult_t (*init)(Logger log, ProfilerCallback profiler);
  Devices devices;
  ncclResult_t (*get_properties)(int dev, PropertiesV10* properties);
  ncclResult_t (*listen)(int dev, void* handle, void** listen_comm);
  ncclResult_t (*connect)(int dev, CommConfig* config, void* handle, void** send_comm,
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
  ncclResult_t (*make_virtual_device)(int* dev, VirtualDeviceV10* device);
};
static_assert(sizeof(NetV10) == 20 * sizeof(void*));

}  // namespace weft::net_abi
