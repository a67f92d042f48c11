// Watches a row. Tells a person at a terminal that it is slow, and ends it at the timeout.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace weft::perf {

// One thread calls begin() and end(). on_timeout runs in the watching thread.
class Watch {
 public:
  // Starts no thread if there is neither a terminal nor a timeout (0).
  Watch(bool show_progress, int timeout_s, std::function<void(const std::string&)> on_timeout);
  ~Watch();

  void begin(std::string what);
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& stop);

  const bool show_progress_;
  const std::chrono::seconds timeout_;
  const std::function<void(const std::string&)> on_timeout_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_;  // empty: no row runs
  Clock::time_point began_;
  bool line_shown_ = false;
  std::jthread thread_;
};

}  // namespace weft::perf
