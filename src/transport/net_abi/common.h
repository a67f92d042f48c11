// NCCL's network plugin ABI: the parts that all versions share. The declarations follow the
// published layouts. A plugin is found by symbol and called through a table of function pointers,
// so NCCL's headers are not needed. Tables are the data symbols ncclNetPlugin_v8 ..
// ncclNetPlugin_v12.
//
// Rules of the interface. One thread at a time calls for one comm. connect() and accept() never
// wait: they succeed with a null comm until the connection exists. The caller repeats the call with
// the same handle memory, in which connect() may keep its state. isend() and irecv() may return a
// null request: try again later. A comm has at most kMaxRequests requests in flight. They complete
// in any order, but messages are received in the order they were sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"

namespace weft::net_abi {

inline constexpr size_t kHandleBytes = 128;  // the size of a listen() handle
inline constexpr int kMaxRequests = 32;      // in flight per comm
inline constexpr int kMaxPlugins = 16;       // in a process
inline constexpr int kUndefined = -1;        // traffic class, attributes, rail, plane
inline constexpr size_t kLargestIntSize = size_t{1} << 30;  // v8 sizes are int
inline constexpr size_t kLargestSize = size_t{1} << 40;     // for max_p2p_bytes, max_coll_bytes

// Kinds of memory: Properties::pointer_support is a set of them, regMr gets one.
enum PointerKind : int { kHostPointer = 1, kCudaPointer = 2, kDmaBuf = 4 };

enum DeviceType : int {
  kDeviceHost = 0,  // no offload: the only type that Weft uses
  kDeviceUnpack = 1,
  kDeviceGinProxy = 2,
  kDeviceGinGdaki = 3,
};

// In: *request of irecv() may be this. Then the caller does not need to know when the receive
// completes.
inline constexpr uintptr_t kOptionalReceiveCompletion = 1;

// Numbers as in NCCL_DEBUG; flags as in NCCL_DEBUG_SUBSYS (src/base/log.h has both).
enum LogLevel : int { kLogNone, kLogVersion, kLogWarn, kLogInfo, kLogAbort, kLogTrace };
using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
using ProfilerCallback = ncclResult_t (*)(void** event, int type, void* parent, int64_t plugin,
                                          void* data);

struct DeviceHandle {
  DeviceType type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(sizeof(DeviceHandle) == 32);

struct CommConfig {
  int traffic_class;
};
static_assert(sizeof(CommConfig) == 4);

template <int kMostDevices>
struct VirtualDevice {
  int ndevs;
  int devs[kMostDevices];
};

// Functions that are the same in all versions.
using Devices = ncclResult_t (*)(int* ndev);
using Accept = ncclResult_t (*)(void* listen_comm, void** recv_comm, DeviceHandle** device);
using RegMr = ncclResult_t (*)(void* comm, void* data, size_t size, int type, void** mr);
using RegMrDmaBuf = ncclResult_t (*)(void* comm, void* data, size_t size, int type, uint64_t offset,
                                     int fd, void** mr);
using DeregMr = ncclResult_t (*)(void* comm, void* mr);
using Flush = ncclResult_t (*)(void* recv_comm, int n, void** data, int* sizes, void** mrs,
                               void** request);
using Test = ncclResult_t (*)(void* request, int* done, int* sizes);
using Close = ncclResult_t (*)(void* comm);
using GetDeviceMr = ncclResult_t (*)(void* comm, void* mr, void** device_mr);
using IrecvConsumed = ncclResult_t (*)(void* recv_comm, int n, void* request);

}  // namespace weft::net_abi
