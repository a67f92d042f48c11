// Ends a test program that hangs, and says what each rank was doing: a thread that waits cannot be
// stopped otherwise.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weft::test {

// While it lives, no `limit` may pass without a note from some rank. All methods are thread-safe.
class Watchdog {
 public:
  explicit Watchdog(int nranks, std::chrono::milliseconds limit = std::chrono::seconds(60));
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What `rank` does from now on.
  void note(int rank, std::string what);

 private:
  void watch(std::chrono::milliseconds limit);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::chrono::steady_clock::time_point last_;
  std::vector<std::string> doing_;
  std::thread thread_;
};

}  // namespace weft::test
