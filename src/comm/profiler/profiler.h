// The profiler plugin of a process, and what it is told of one communicator: groups, calls and
// launches, when they begin and when they return, and what the proxies do for them. In host mode a
// call has run when it returns, but for what proxies have yet to send; on GPUs it has been
// launched.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/comm/network_links.h"
#include "src/comm/profiler/event.h"
#include "src/comm/profiler/proxy_events.h"
#include "src/comm/profiler/stream_events.h"
#include "src/exec/operation_observer.h"

namespace weft {

// Used by the thread that makes the calls of the communicator, but for single events. Must outlive
// the streams that it follows.
class Profiler final : public OperationObserver {
 public:
  // nullptr when there is no plugin, or it does not start; the log says why.
  static std::unique_ptr<Profiler> open(const Config& config, const ProfiledComm& comm);
  // The same with a plugin that is there already. It and the mask of all its communicators, which
  // plugins set when they see the first and may write at any time, outlive this.
  static std::unique_ptr<Profiler> open(const ProfilerPlugin& plugin, const ProfiledComm& comm,
                                        int& mask);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Before the first call.
  void follow(std::span<const NetworkLinks::Link> links);

  // The events of calls that are launched together; their order is that of stop().
  void start(std::span<const Call* const> calls, bool on_gpu);
  void stop();

  void begins(const void* call, std::span<const StreamTraffic> traffic) override;
  void launched() override { expected_.clear(); }
  void captured() override;

  // Single events, by any thread. Those that the plugin does not ask for are nullptr, and may be
  // recorded to.
  bool asks(profiler_abi::Kind kind) const;
  void* start_event(const ProfilerEvent& event) const;
  void record(void* event, profiler_abi::State state, const OperationProgress& progress) const {
    if (event != nullptr) plugin_.record(event, state, progress);
  }
  void stop_event(void* event) const { plugin_.stop(event); }

 private:
  Profiler(const ProfilerPlugin& plugin, const ProfiledComm& comm, const int& mask)
      : plugin_(plugin), comm_(comm), mask_(mask) {}
  void* begin(const ProfilerEvent& event);

  const ProfilerPlugin& plugin_;
  const ProfiledComm comm_;
  const int& mask_;  // the kinds of events that are asked for
  void* context_ = nullptr;
  bool opened_ = false;
  uint64_t sequence_ = 0;
  std::vector<void*> running_;                          // in the order in which they began
  std::vector<std::pair<const void*, void*>> parents_;  // per call that runs, its event
  std::map<const NetStream*, StreamEvents*> streams_;   // which own them
  std::vector<StreamEvents*> expected_;                 // by streams, but not launched yet
  std::vector<std::unique_ptr<ProxyEvents>> proxies_;
};

}  // namespace weft
