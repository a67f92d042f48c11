// The events for a profiler plugin, independent of its ABI version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/base/config.h"
#include "src/comm/call.h"
#include "src/comm/profiler/abi.h"

namespace weft {

// One direction of a link to another host.
struct ProfiledLink {
  int peer = 0, channel = 0;
  bool sends = false;
};

struct ProfilerEvent {
  profiler_abi::Kind kind = profiler_abi::kGroup;
  void* parent = nullptr;
  void* group = nullptr;       // v5: the group event, when the parent is an API event
  const Call* call = nullptr;  // nullptr: a group, or a launch on `stream`
  cudaStream_t stream = nullptr;
  uint64_t sequence = 0;
  uint64_t gpu_time = 0;  // kKernelCh: when it began
  // Events of the proxy:
  const ProfiledLink* link = nullptr;  // kProxyOp
  uint64_t steps = 0;                  // kProxyOp: the most steps; kProxyStep: the step's number
  uint64_t largest = 0;                // kProxyOp: the most bytes of a step
};

// Progress of a proxy event so far.
struct OperationProgress {
  uint64_t bytes = 0;
  int steps = 0;
  uint64_t gpu_time = 0;  // kKernelChStop
};

// The communicator that is profiled.
struct ProfiledComm {
  uint64_t id = 0;
  std::string name;
  int nodes = 1, nranks = 1, rank = 0;
};

// A plugin's table, behind one interface for all ABI versions. As in NCCL, plugins must be
// thread-safe: threads that make calls and threads that move messages use them.
class ProfilerPlugin {
 public:
  virtual ~ProfilerPlugin() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  // The plugin sets the mask, and may change it at any later time.
  virtual ncclResult_t open(void** context, int* mask, const ProfiledComm& comm) const = 0;
  virtual void* start(void* context, const ProfiledComm& comm,
                      const ProfilerEvent& event) const = 0;
  virtual void stop(void* event) const = 0;
  // Skips states that the plugin's version does not have.
  virtual void record(void* event, profiler_abi::State state,
                      const OperationProgress& progress) const = 0;
  virtual void close(void* context) const = 0;
};

// The library's table of the newest version; nullptr: it has none.
std::unique_ptr<ProfilerPlugin> find_profiler(void* library);

}  // namespace weft
