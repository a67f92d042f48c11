// NCCL's network plugin ABI, version 8 (NCCL 2.20 and later): sizes of messages are int.
#pragma once

#include "src/transport/net_abi/common.h"

namespace weft::net_abi {

struct PropertiesV8 {
  char* name;
  char* pci_path;       // in /sys
  uint64_t guid;        // of the chip: functions of one card share it
  int pointer_support;  // set of PointerKind
  int registration_is_global;
  int speed;  // Mb/s
  int port;
  float latency;     // us
  int max_comms;     // 0: no limit
  int max_receives;  // most receives that one irecv() takes
  DeviceType device_type;
  int device_version;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, device_version) == 56);

struct NetV8 {
  static constexpr int kVersion = 8;
  static constexpr const char* kSymbol = "ncclNetPlugin_v8";
  using Properties = PropertiesV8;

  const char* name;
  ncclResult_t (*init)(Logger log);
  Devices devices;
  ncclResult_t (*get_properties)(int dev, PropertiesV8* properties);
  ncclResult_t (*listen)(int dev, void* handle, void** listen_comm);
  ncclResult_t (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dma_buf;
  DeregMr dereg_mr;
  ncclResult_t (*isend)(void* send_comm, void* data, int size, int tag, void* mr, void** request);
  ncclResult_t (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mrs,
                        void** request);
  Flush iflush;
  Test test;
  Close close_send, close_recv, close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
};
static_assert(sizeof(NetV8) == 19 * sizeof(void*));

}  // namespace weft::net_abi
