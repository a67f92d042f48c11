// Watches over a row: tells a person at a terminal that it is slow, and ends it at the timeout.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace weft::perf {

// begin() and end() come from one thread; on_timeout runs in the watching thread.
class Watch {
 public:
  // No thread is started when there is neither a terminal to talk to nor a timeout (0).
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
  std::string what_;  // empty: nothing under way
  Clock::time_point began_;
  bool line_shown_ = false;
  std::jthread thread_;
};

}  // namespace weft::perf
