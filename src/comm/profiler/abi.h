// NCCL's profiler plugin ABI, versions 1 to 5, declared from the published layouts. A plugin is the
// data symbol ncclProfiler_vN, a table of functions. A descriptor starts an event, its handle ends
// it. Parents are handles, too. Only the events that Weft reports are declared. They include the
// largest member of each union, so sizes are NCCL's.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"
#include "src/transport/net_abi/common.h"

namespace weft::profiler_abi {

// Kinds of events: bits of the mask with which a plugin asks for events.
enum Kind : int {
  kGroup = 1 << 0,
  kColl = 1 << 1,
  kP2p = 1 << 2,
  kProxyOp = 1 << 3,
  kProxyStep = 1 << 4,
  kProxyCtrl = 1 << 5,
  kKernelCh = 1 << 6,   // since v3
  kNetPlugin = 1 << 7,  // not reported
  kGroupApi = 1 << 8,
  kCollApi = 1 << 9,
  kP2pApi = 1 << 10,
  kKernelLaunch = 1 << 11,
};

// The states that record_state() reports for events of the proxy.
enum State : int {
  // Of operations, up to v3:
  kOpSendPosted = 0,
  kOpSendFifoWait = 1,
  kOpSendTransmitted = 2,
  kOpSendDone = 3,
  kOpRecvPosted = 4,
  kOpRecvReceived = 5,
  kOpRecvTransmitted = 6,
  kOpRecvDone = 7,
  // Of steps; a state names what the step waits for:
  kStepSendGpuWait = 8,
  kStepSendWait = 9,
  kStepRecvWait = 10,
  kStepRecvFlushWait = 11,
  kStepRecvGpuWait = 12,
  kStepSendPeerWait = 20,  // from v4 on
  // Of the proxy's thread:
  kCtrlIdle = 13,
  kCtrlActive = 14,
  kCtrlSleep = 15,
  kCtrlWakeup = 16,
  kOpInProgress = 19,  // from v4 on
  kKernelChStop = 22,  // from v4 on
};

// The arguments of record_state(), up to v3 and from v4 on.
union StateArgumentsV1 {
  struct {
    size_t bytes;
    int steps;
  } proxy_op;
  struct {
    int appended;
  } proxy_ctrl;
};
static_assert(sizeof(StateArgumentsV1) == 16);
union StateArgumentsV4 {
  struct {
    size_t bytes;
  } proxy_step;
  struct {
    int appended;
  } proxy_ctrl;
  struct {
    uint64_t gpu_time;
  } kernel;
};
static_assert(sizeof(StateArgumentsV4) == 8);

// The same in all versions.
struct ProxyOp {
  pid_t pid;  // of the process that started the parent event
  uint8_t channel;
  int peer, steps, chunk, is_send;
};
struct ProxyStep {
  int step;
};
// Since v3; the time since v4.
struct KernelCh {
  uint8_t channel;
  uint64_t gpu_time;
};

using net_abi::Logger;

// The end of a table is the same in all versions. The type of `arguments` depends on the state.
template <typename Descriptor>
struct Functions {
  ncclResult_t (*start_event)(void* context, void** event, Descriptor* descriptor);
  ncclResult_t (*stop_event)(void* event);
  ncclResult_t (*record_state)(void* event, int state, void* arguments);
  ncclResult_t (*finalize)(void* context);
};

using InitV1 = ncclResult_t (*)(void** context, int* mask);
using InitV4 = ncclResult_t (*)(void** context, int* mask, const char* name, uint64_t comm,
                                int nodes, int nranks, int rank, Logger log);
using InitV5 = ncclResult_t (*)(void** context, uint64_t comm, int* mask, const char* name,
                                int nodes, int nranks, int rank, Logger log);

struct DescriptorV1 {
  struct Coll {
    const char* name;
    uint64_t comm, sequence;
    uint8_t function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    uint8_t type;
    uint32_t op;
    size_t traffic;
    uint8_t channels, warps, algorithm, protocol;
    int collnet, nvls;
  };
  struct P2p {
    const char* name;
    uint64_t comm;
    uint8_t function;
    void* buffer;
    uint8_t type;
    size_t count;
    int peer;
  };
  uint8_t kind;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
  };
};
static_assert(sizeof(DescriptorV1) == 120);

struct DescriptorV2 {
  struct Coll {
    const char* name;
    uint64_t comm, sequence;
    const char* function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    const char* type;
    size_t traffic;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
  };
  struct P2p {
    const char* name;
    uint64_t comm;
    const char* function;
    void* buffer;
    const char* type;
    size_t count;
    int peer;
  };
  uint8_t kind;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
  };
};
static_assert(sizeof(DescriptorV2) == 128);

struct DescriptorV3 {
  struct Coll {
    const char* name;
    uint64_t comm, sequence;
    const char* function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    const char* type;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
  };
  uint8_t kind;
  void* parent;
  int rank;
  union {
    Coll coll;
    DescriptorV2::P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel;
  };
};
static_assert(sizeof(DescriptorV3) == 120);

struct DescriptorV4 {
  struct Coll {
    uint64_t sequence;
    const char* function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    const char* type;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
  };
  struct P2p {
    const char* function;
    void* buffer;
    const char* type;
    size_t count;
    int peer;
    uint8_t channels;
  };
  uint8_t kind;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel;
  };
};
static_assert(sizeof(DescriptorV4) == 104);

struct DescriptorV5 {
  struct Coll {
    uint64_t sequence;
    const char* function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    const char* type;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
    void* group;
  };
  struct P2p {
    const char* function;
    void* buffer;
    const char* type;
    size_t count;
    int peer;
    uint8_t channels;
    void* group;
  };
  struct GroupApi {
    int captured;
    int depth;
  };
  struct CollApi {
    const char* function;
    size_t count;
    const char* type;
    int root;
    void* stream;
    bool captured;
  };
  struct P2pApi {
    const char* function;
    size_t count;
    const char* type;
    void* stream;
    bool captured;
  };
  struct KernelLaunch {
    void* stream;
  };
  uint64_t kind;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    GroupApi group_api;
    CollApi coll_api;
    P2pApi p2p_api;
    KernelLaunch kernel_launch;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel;
  };
};
static_assert(sizeof(DescriptorV5) == 112);

template <typename Init, typename Descriptor>
struct Table {
  const char* name;
  Init init;
  Functions<Descriptor> functions;
};
using TableV1 = Table<InitV1, DescriptorV1>;
using TableV2 = Table<InitV1, DescriptorV2>;
using TableV3 = Table<InitV1, DescriptorV3>;
using TableV4 = Table<InitV4, DescriptorV4>;
using TableV5 = Table<InitV5, DescriptorV5>;

}  // namespace weft::profiler_abi
