// What a profiler plugin is told of the thread of one proxy (ProxyCtrl): when it moves bytes again,
// looks in vain for the first time, and sleeps.
#pragma once

#include "src/transport/stream_observer.h"

namespace weft {

class Profiler;
class Proxy;

// From construction to destruction. The profiler must outlive it.
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
  void* sleep_ = nullptr;  // while it sleeps
};

}  // namespace weft
