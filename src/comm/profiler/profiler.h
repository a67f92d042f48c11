// The profiler plugin of a process, and what it is told of one communicator: groups, calls and
// launches, when they begin and when they return. In host mode a call has run when it returns; on
// GPUs it has been launched.
#pragma once

#include <span>
#include <vector>

#include "src/comm/profiler/event.h"

namespace weft {

// Used by the thread that makes the calls of the communicator.
class Profiler {
 public:
  // nullptr when there is no plugin, or it does not start; the log says why.
  static std::unique_ptr<Profiler> open(const Config& config, const ProfiledComm& comm);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // The events of calls that are launched together; their order is that of stop().
  void start(std::span<const Call* const> calls, bool on_gpu);
  void stop();

 private:
  Profiler(const ProfilerPlugin& plugin, const ProfiledComm& comm) : plugin_(plugin), comm_(comm) {}
  void* begin(const ProfilerEvent& event);

  const ProfilerPlugin& plugin_;
  const ProfiledComm comm_;
  void* context_ = nullptr;
  int mask_ = 0;
  uint64_t sequence_ = 0;
  std::vector<void*> running_;  // in the order in which they began
};

}  // namespace weft
