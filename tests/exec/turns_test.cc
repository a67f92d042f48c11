// Batches of a higher class go first, and lower ones still move on.
#include "src/exec/host/turns.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft::test {
namespace {

using host::Priority;
using host::Turn;
using host::Turns;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kAlwaysBusy{1};

TEST(Turns, GoToTheHigherClass) {
  Turns turns(kAlwaysBusy);
  Turns::use();
  EXPECT_FALSE(turns.must_wait(Priority::kLow));
  turns.begin(Priority::kNormal);
  turns.moves(Priority::kNormal);
  EXPECT_TRUE(turns.must_wait(Priority::kLow));
  EXPECT_FALSE(turns.must_wait(Priority::kNormal));
  EXPECT_FALSE(turns.must_wait(Priority::kHigh));
  turns.end(Priority::kNormal);
  EXPECT_FALSE(turns.must_wait(Priority::kLow));
}

TEST(Turns, DoNotWaitForABatchThatDoesNotMove) {
  Turns turns;
  Turns::use();
  turns.begin(Priority::kHigh);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(turns.must_wait(Priority::kLow));
}

// The higher class goes on without an end. The lower one pauses at once, but never for long, and
// then has a credit.
TEST(Turns, LeaveTheLowerClassACredit) {
  Turns turns(kAlwaysBusy);
  Turns::use();
  turns.begin(Priority::kHigh);
  Turn turn(&turns);
  turn.begin(Priority::kLow);
  for (int round = 0; round < 5; round++) {
    EXPECT_LE(turn.credit(), 0);
    const auto began = Clock::now();
    turn.next(true);
    EXPECT_GE(Clock::now() - began, Turn::kLongestPause) << round;
    EXPECT_FALSE(turn.paused());
    constexpr int64_t kSlice = 64 << 10;
    for (int64_t left = Turn::kCredit; left > 0; left -= kSlice) {
      ASSERT_EQ(turn.credit(), left);
      turn.next(true);  // no pause, which would renew the credit
      turn.count(kSlice);
    }
  }
  turns.end(Priority::kHigh);
  turn.next(true);
  EXPECT_EQ(turn.credit(), 0);  // the next one to come goes first at once
  turn.end();
}

}  // namespace
}  // namespace weft::test
