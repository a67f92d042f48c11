// See timer.h.
#include "src/transport/timer.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cmath>

#include "src/base/error.h"
#include "src/transport/event_loop.h"

namespace weft {
namespace {

timespec to_timespec(double seconds) {
  const double whole = std::floor(seconds);
  return {static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
}

}  // namespace

Timer::Timer(std::function<void()> callback)
    : callback_(std::move(callback)),
      fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!fd_) fail_errno(errno, "cannot make a timer");
  EventLoop::instance().watch(fd_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t ticks = 0;
    if (read(fd_.get(), &ticks, sizeof ticks) == sizeof ticks) callback_();
  });
}

Timer::~Timer() { EventLoop::instance().unwatch(fd_.get()); }

void Timer::set(double first_s, double period_s) {
  const itimerspec times{to_timespec(period_s), to_timespec(first_s)};
  timerfd_settime(fd_.get(), 0, &times, nullptr);
}

}  // namespace weft
