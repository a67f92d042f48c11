// See stall_watch.h.
#include "src/comm/stall_watch.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {

namespace {

constexpr double kFirstCompareS = 1;

}  // namespace

StallWatch::StallWatch(std::string label, double warning_s,
                       std::function<cuda::LongWait()> long_wait, std::function<void()> compare)
    : label_(std::move(label)),
      warning_s_(warning_s),
      long_wait_(std::move(long_wait)),
      compare_(std::move(compare)),
      compare_s_(kFirstCompareS) {
  try {
    timer_ = std::make_unique<Timer>([this] { look(); });
  } catch (const Error& error) {
    WEFT_WARN("{}: {}: GPUs that wait for long are not noticed", label_, error.what());
    return;
  }
  // The period is long, because a process may have many idle communicators.
  timer_->every(warning_s > 0 ? std::clamp(warning_s / 8, 0.01, 1.0) : 1.0);
}

void StallWatch::look() {
  const cuda::LongWait wait = long_wait_();
  if (wait.whom.empty()) return;
  // A shorter wait is a new wait. The margin is for thread blocks that begin the same wait later.
  if (wait.seconds < 0.9 * seen_s_) {
    warned_ = false;
    compare_s_ = kFirstCompareS;
  }
  seen_s_ = wait.seconds;
  if (wait.seconds >= compare_s_) {
    compare_s_ = 2 * wait.seconds;
    compare_();
  }
  if (warned_ || warning_s_ <= 0 || wait.seconds < warning_s_) return;
  WEFT_TELL("{} waits on its GPU for {}: for {:.0f} s already{}{}", label_, wait.whom, wait.seconds,
            wait.hint.empty() ? "" : "; ", wait.hint);
  warned_ = true;
}

}  // namespace weft
