// See stall_watch.h.
#include "src/comm/stall_watch.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/transport/event_loop.h"

namespace weft {
namespace {

// Kernels that wait tell so at least as often as that.
constexpr std::chrono::seconds kTold{2};

}  // namespace

StallWatch::StallWatch(std::string label, double warning_s, std::function<std::string()> waits_for)
    : label_(std::move(label)),
      warning_s_(warning_s),
      waits_for_(std::move(waits_for)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) fail_errno(errno, "cannot make a timer");
  // Seldom: a process may have many communicators, and nothing to do.
  const double every_s = std::clamp(warning_s / 8, 0.01, 5.0);
  timespec every{};
  every.tv_sec = static_cast<time_t>(every_s);
  every.tv_nsec = static_cast<long>((every_s - static_cast<double>(every.tv_sec)) * 1e9);
  const itimerspec period{every, every};
  timerfd_settime(timer_.get(), 0, &period, nullptr);
  EventLoop::instance().watch(timer_.get(), EPOLLIN, [this](uint32_t) { look(); });
}

StallWatch::~StallWatch() { EventLoop::instance().unwatch(timer_.get()); }

void StallWatch::look() {
  uint64_t ticks = 0;
  [[maybe_unused]] const ssize_t got = read(timer_.get(), &ticks, sizeof ticks);
  const auto now = Clock::now();
  const std::string whom = waits_for_();
  if (whom.empty()) {
    if (now - seen_ > kTold) waiting_ = warned_ = false;
    return;
  }
  if (!waiting_) since_ = now;
  waiting_ = true;
  seen_ = now;
  const double seconds = std::chrono::duration<double>(now - since_).count();
  if (warned_ || seconds < warning_s_) return;
  WEFT_WARN("{} waits in a kernel for {}: for {:.0f} s already", label_, whom, seconds);
  warned_ = true;
}

}  // namespace weft
