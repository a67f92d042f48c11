// A wait that goes on is warned about once; another one later, again.
#include "src/comm/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <regex>
#include <thread>

#include "src/base/log.h"
#include "tests/support/log_file.h"
#include "tests/support/patterns.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;

class StallWatchTest : public testing::Test {
 protected:
  StallWatchTest() { log::reset(); }
  ~StallWatchTest() override { log::reset(); }

  size_t warnings() const {
    const std::string text = file_.text();
    const std::regex warning("NCCL WARN rank 1 of 2 waits in a kernel for peer 0: for [0-9]+ s");
    return static_cast<size_t>(
        std::distance(std::sregex_iterator(text.begin(), text.end(), warning), {}));
  }
  bool warned_within(size_t times, milliseconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (warnings() < times && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(10));
    return warnings() == times;
  }
  // As long as it is set, a kernel tells every time that it is asked.
  std::string waits_for() const { return waiting_ ? "peer 0" : ""; }

  const LogFile file_{"stall-watch-test"};
  std::atomic<bool> waiting_{false};
};

TEST_F(StallWatchTest, WarnsOncePerWait) {
  const StallWatch watch("rank 1 of 2", 0.2, [this] { return waits_for(); });
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(warnings(), 0u) << file_.text();
  waiting_ = true;
  EXPECT_TRUE(warned_within(1, patience(milliseconds(5000)))) << file_.text();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(warnings(), 1u) << file_.text();
  waiting_ = false;
  std::this_thread::sleep_for(milliseconds(2500));  // it is over only when it is quiet for a while
  waiting_ = true;
  EXPECT_TRUE(warned_within(2, patience(milliseconds(5000)))) << file_.text();
}

TEST_F(StallWatchTest, SaysNothingOfShortWaits) {
  const StallWatch watch("rank 1 of 2", 60, [this] { return waits_for(); });
  waiting_ = true;
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(warnings(), 0u) << file_.text();
}

}  // namespace
}  // namespace weft::test
