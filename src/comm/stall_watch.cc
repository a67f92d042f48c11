// See stall_watch.h.
#include "src/comm/stall_watch.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/log.h"
#include "src/transport/event_loop.h"

namespace weft {

StallWatch::StallWatch(std::string label, double warning_s,
                       std::function<cuda::LongWait()> long_wait)
    : label_(std::move(label)),
      warning_s_(warning_s),
      long_wait_(std::move(long_wait)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) {
    WEFT_WARN("{}: no timer ({}): GPUs that wait for long will not be warned about", label_,
              std::strerror(errno));
    return;
  }
  // The period is long, because a process may have many idle communicators.
  const double every_s = std::clamp(warning_s / 8, 0.01, 5.0);
  timespec every{};
  every.tv_sec = static_cast<time_t>(every_s);
  every.tv_nsec = static_cast<long>((every_s - static_cast<double>(every.tv_sec)) * 1e9);
  const itimerspec period{every, every};
  timerfd_settime(timer_.get(), 0, &period, nullptr);
  EventLoop::instance().watch(timer_.get(), EPOLLIN, [this](uint32_t) { look(); });
}

StallWatch::~StallWatch() {
  if (timer_) EventLoop::instance().unwatch(timer_.get());
}

void StallWatch::look() {
  uint64_t ticks = 0;
  [[maybe_unused]] const ssize_t got = read(timer_.get(), &ticks, sizeof ticks);
  const cuda::LongWait wait = long_wait_();
  if (wait.whom.empty()) return;
  // A shorter wait is a new wait. The margin is for thread blocks that begin the same wait later.
  if (wait.seconds < 0.9 * seen_s_) warned_ = false;
  seen_s_ = wait.seconds;
  if (warned_ || wait.seconds < warning_s_) return;
  WEFT_TELL("{} waits on its GPU for {}: for {:.0f} s already{}{}", label_, wait.whom, wait.seconds,
            wait.hint.empty() ? "" : "; ", wait.hint);
  warned_ = true;
}

}  // namespace weft
