// A timer of the control thread.
#pragma once

#include <functional>

#include "src/base/handles.h"

namespace weft {

// Not thread-safe, except that the callback runs on the control thread. After the destructor
// returns it does not run any more.
class Timer {
 public:
  // Throws Error if the process has no descriptor left.
  explicit Timer(std::function<void()> callback);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void once(double seconds) { set(seconds, 0); }
  void every(double seconds) { set(seconds, seconds); }
  void cancel() { set(0, 0); }

 private:
  void set(double first_s, double period_s);

  const std::function<void()> callback_;
  const Fd fd_;
};

}  // namespace weft
