// Ends a test program that hangs, and prints what each rank was doing. A thread that waits cannot
// be stopped in any other way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weft::test {

// Ends the program if no rank calls note() for `limit`. All methods are thread-safe.
class Watchdog {
 public:
  explicit Watchdog(int nranks, std::chrono::milliseconds limit = std::chrono::seconds(60));
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Records what `rank` does from now on.
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
