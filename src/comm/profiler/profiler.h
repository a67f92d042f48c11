// Reports one communicator to the process's profiler plugin: when groups, calls and launches begin
// and return, and what the proxies do for them. In host mode a call has run when it returns, but
// proxies may still send its data. On GPUs it has only been launched.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/comm/network_links.h"
#include "src/comm/profiler/event.h"
#include "src/comm/profiler/kernel_events.h"
#include "src/comm/profiler/proxy_events.h"
#include "src/comm/profiler/stream_events.h"
#include "src/exec/operation_observer.h"

namespace weft {

// For the thread that makes the communicator's calls. Any thread may use the single events. Must
// outlive the streams that it follows.
class Profiler final : public OperationObserver {
 public:
  // nullptr: there is no plugin, or it does not start. The log says why.
  static std::unique_ptr<Profiler> open(const Config& config, const ProfiledComm& comm);
  // The same with a loaded plugin. All its communicators share one mask. The plugin sets the mask
  // at the first communicator and may write it at any time. `plugin` and `mask` must outlive this.
  static std::unique_ptr<Profiler> open(const ProfilerPlugin& plugin, const ProfiledComm& comm,
                                        int& mask);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Called before the first call.
  void follow(std::span<const NetworkLinks::Link> links);

  // Starts the events of calls that are launched together. stop() ends them, the last first.
  void start(std::span<const Call* const> calls, bool on_gpu);
  void stop();

  void begins(const void* call, std::span<const StreamTraffic> traffic) override;
  void launched() override { expected_.clear(); }
  void captured() override;
  bool wants_kernel_times() const override { return asks(profiler_abi::kKernelCh); }
  void kernels(const void* call, const KernelTimes& times) override;

  // Single events, for any thread. An event that the plugin does not ask for is nullptr. record()
  // accepts nullptr.
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
  void* event_of(const void* call) const;

  const ProfilerPlugin& plugin_;
  const ProfiledComm comm_;
  const int& mask_;  // the kinds of events that the plugin asks for
  void* context_ = nullptr;
  bool opened_ = false;
  uint64_t sequence_ = 0;
  std::vector<void*> running_;                          // events in the order of their start
  std::vector<std::pair<const void*, void*>> parents_;  // running calls and their events
  std::map<const NetStream*, StreamEvents*> streams_;   // the streams own the events
  std::vector<StreamEvents*> expected_;                 // of operations that are not launched yet
  std::vector<std::unique_ptr<ProxyEvents>> proxies_;
  std::unique_ptr<KernelEvents> kernels_ = std::make_unique<KernelEvents>(*this);
};

}  // namespace weft
