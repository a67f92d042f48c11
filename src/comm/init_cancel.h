// Ends an init that another thread runs: ncclCommAbort of a communicator that is not up yet.
#pragma once

#include <functional>
#include <mutex>

namespace weft {

// Thread-safe.
class InitCancel {
 public:
  // From now on cancel() calls `stop`. If it was called before, so does this.
  void arm(std::function<void()> stop) {
    std::lock_guard lock(mutex_);
    stop_ = std::move(stop);
    if (cancelled_) stop_();
  }
  // After this returns, `stop` is not called any more.
  void disarm() {
    std::lock_guard lock(mutex_);
    stop_ = nullptr;
  }
  void cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (stop_) stop_();
  }
  bool cancelled() const {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  mutable std::mutex mutex_;
  std::function<void()> stop_;
  bool cancelled_ = false;
};

}  // namespace weft
