// What is reported to a profiler plugin, whatever version of the ABI it has.
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
  // Of the proxy:
  const ProfiledLink* link = nullptr;  // kProxyOp
  uint64_t steps = 0;                  // kProxyOp: how many at most; kProxyStep: which
  uint64_t largest = 0;                // kProxyOp: bytes of a step
};

// What an event of the proxy has done so far.
struct OperationProgress {
  uint64_t bytes = 0;
  int steps = 0;
};

// Who asks.
struct ProfiledComm {
  uint64_t id = 0;
  std::string name;
  int nodes = 1, nranks = 1, rank = 0;
};

// A plugin's table behind one face. As in NCCL, plugins must stand several threads: those that make
// calls and those that move messages.
class ProfilerPlugin {
 public:
  virtual ~ProfilerPlugin() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  // The plugin may change the mask later, too.
  virtual ncclResult_t open(void** context, int* mask, const ProfiledComm& comm) const = 0;
  virtual void* start(void* context, const ProfiledComm& comm,
                      const ProfilerEvent& event) const = 0;
  virtual void stop(void* event) const = 0;
  // States that the plugin's version does not know are left out.
  virtual void record(void* event, profiler_abi::State state,
                      const OperationProgress& progress) const = 0;
  virtual void close(void* context) const = 0;
};

// The newest table that a library has; nullptr: none.
std::unique_ptr<ProfilerPlugin> find_profiler(void* library);

}  // namespace weft
