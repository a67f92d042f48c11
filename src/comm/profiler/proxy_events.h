// Reports the thread of one proxy to a profiler plugin (ProxyCtrl): when it begins to move bytes,
// when it first finds nothing to do, and when it sleeps.
#pragma once

#include "src/transport/stream_observer.h"

namespace weft {

class Profiler;
class Proxy;

// Observes from construction to destruction. The profiler must outlive it.
class ProxyEvents final : public ProxyObserver {
 public:
  ProxyEvents(const Profiler& profiler, Proxy& proxy);
  ~ProxyEvents() override;
  ProxyEvents(const ProxyEvents&) = delete;
  ProxyEvents& operator=(const ProxyEvents&) = delete;
  const Proxy& proxy() const { return proxy_; }

  void turned(ProxyState from, ProxyState to) noexcept override;

 private:
  const Profiler& profiler_;
  Proxy& proxy_;
  void* sleep_ = nullptr;  // the event of the current sleep
};

}  // namespace weft
