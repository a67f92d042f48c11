// The watch warns once per long wait, and never about many short waits.
#include "src/comm/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <regex>
#include <thread>

#include "src/base/log.h"
#include "tests/support/log_file.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;

class StallWatchTest : public testing::Test {
 protected:
  static constexpr double kWarning = 0.2;

  size_t warnings() const {
    const std::string text = file_.text();
    const std::regex warning(
        "NCCL WARN rank 1 of 2 waits on its GPU for peer 0: for [0-9]+ s already; it may");
    return static_cast<size_t>(
        std::distance(std::sregex_iterator(text.begin(), text.end(), warning), {}));
  }
  // Waits until the watch has looked this many more times.
  void let_it_look(int times) {
    const int goal = looks_ + times;
    const auto end = std::chrono::steady_clock::now() + patience(milliseconds(10000));
    while (looks_ < goal && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(5));
    ASSERT_GE(looks_, goal);
  }
  // The wait that the watch sees when it looks: `seconds_` long, or none.
  cuda::LongWait told() {
    const double seconds = seconds_;
    looks_++;
    return {seconds > 0 ? "peer 0" : "", seconds, "it may be elsewhere"};
  }

  const LogFile file_{"stall-watch-test", log::reset};
  std::atomic<double> seconds_{0};
  std::atomic<int> looks_{0};
  std::atomic<int> compared_{0};
  const StallWatch watch_{"rank 1 of 2", kWarning, [this] { return told(); },
                          [this] { compared_++; }};
};

TEST_F(StallWatchTest, WarnsOncePerWait) {
  for (const double seconds : {0.1, 0.25, 0.3, 5.0, 40.0}) {
    seconds_ = seconds;
    let_it_look(3);
    EXPECT_EQ(warnings(), seconds < kWarning ? 0u : 1u) << file_.text();
  }
  seconds_ = 0;
  let_it_look(3);
  for (const double seconds : {0.1, 0.3, 0.5}) {
    seconds_ = seconds;
    let_it_look(3);
  }
  EXPECT_EQ(warnings(), 2u) << "another wait" << file_.text();
}

TEST_F(StallWatchTest, SaysNothingOfManyShortWaits) {
  for (int i = 0; i < 30; ++i) {
    seconds_ = i % 3 == 0 ? 0.19 : 0.1;
    let_it_look(1);
  }
  EXPECT_EQ(warnings(), 0u) << file_.text();
}

TEST_F(StallWatchTest, ComparesCallsMoreAndMoreSeldomInOneWait) {
  for (const auto& [seconds, times] :
       {std::pair{0.9, 0}, {1.2, 1}, {2.0, 1}, {2.5, 2}, {4.9, 2}, {6.0, 3}, {0.5, 3}, {1.1, 4}}) {
    seconds_ = seconds;
    let_it_look(3);
    EXPECT_EQ(compared_, times) << seconds;
  }
}

}  // namespace
}  // namespace weft::test
