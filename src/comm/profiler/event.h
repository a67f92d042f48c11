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

struct ProfilerEvent {
  profiler_abi::Kind kind = profiler_abi::kGroup;
  void* parent = nullptr;
  void* group = nullptr;       // v5: the group event, when the parent is an API event
  const Call* call = nullptr;  // nullptr: a group, or a launch on `stream`
  cudaStream_t stream = nullptr;
  uint64_t sequence = 0;
};

// Who asks.
struct ProfiledComm {
  uint64_t id = 0;
  std::string name;
  int nodes = 1, nranks = 1, rank = 0;
};

// A plugin's table behind one face. Called by one thread at a time for a context.
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
  virtual void close(void* context) const = 0;
};

// The newest table that a library has; nullptr: none.
std::unique_ptr<ProfilerPlugin> find_profiler(void* library);

}  // namespace weft
