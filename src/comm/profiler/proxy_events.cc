// See proxy_events.h.
#include "src/comm/profiler/proxy_events.h"

#include <utility>

#include "src/comm/profiler/profiler.h"
#include "src/transport/proxy.h"

namespace weft {

using namespace profiler_abi;  // NOLINT

ProxyEvents::ProxyEvents(const Profiler& profiler, Proxy& proxy)
    : profiler_(profiler), proxy_(proxy) {
  proxy_.observe(*this);
}

ProxyEvents::~ProxyEvents() {
  proxy_.forget(*this);
  if (sleep_ != nullptr) profiler_.stop_event(sleep_);
}

void ProxyEvents::turned(ProxyState from, ProxyState to) noexcept {
  const auto begin = [this](State state) {
    void* event = profiler_.start_event({.kind = kProxyCtrl});
    profiler_.record(event, state, {});
    return event;
  };
  const auto tell = [&](State state) {
    if (void* event = begin(state); event != nullptr) profiler_.stop_event(event);
  };
  if (sleep_ != nullptr) {
    profiler_.record(sleep_, kCtrlWakeup, {});
    profiler_.stop_event(std::exchange(sleep_, nullptr));
  }
  if (to == ProxyState::kActive) tell(kCtrlActive);
  if (from == ProxyState::kActive) tell(kCtrlIdle);
  if (to == ProxyState::kAsleep) sleep_ = begin(kCtrlSleep);
}

}  // namespace weft
