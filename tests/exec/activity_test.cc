// What a rank does can be read at any time, from any thread, and is never a mixture of two calls.
#include "src/exec/activity.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/base/rough_clock.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Phase = OperationState::Phase;

Activity::Begin all_reduce(uint64_t number, uint64_t count) {
  return {CollectiveKind::kAllReduce, false, 7, 0, 0, number, count};
}

TEST(Activity, HasNoOperationBeforeTheFirst) {
  const Activity activity;
  EXPECT_EQ(activity.state().phase, Phase::kNone);
  EXPECT_EQ(activity.state().begun, 0u);
}

TEST(Activity, TellsTheCurrentOperationAndThenTheLast) {
  RoughClock::tick();
  Activity activity;
  activity.begin({CollectiveKind::kBroadcast, false, 7, 2, 3, 5, 1000});
  OperationState state = activity.state();
  EXPECT_EQ(state.phase, Phase::kRunning);
  EXPECT_EQ(state.kind, CollectiveKind::kBroadcast);
  EXPECT_EQ(state.number, 5u);
  EXPECT_EQ(state.count, 1000u);
  EXPECT_EQ(state.root, 3);
  EXPECT_EQ(state.type, 7);
  EXPECT_EQ(state.op, 2);
  EXPECT_EQ(state.waits_for, -1);
  EXPECT_LT(state.seconds, 100);
  activity.end(false);
  state = activity.state();
  EXPECT_EQ(state.phase, Phase::kDone);
  EXPECT_EQ(state.number, 5u);
  activity.begin({CollectiveKind::kSendRecv, true, 7, 0, 1, 0, 10});
  activity.end(true);
  state = activity.state();
  EXPECT_EQ(state.phase, Phase::kFailed);
  EXPECT_EQ(state.kind, CollectiveKind::kSendRecv);
  EXPECT_TRUE(state.sends);
  EXPECT_EQ(state.number, 0u);
  EXPECT_EQ(state.begun, 2u);
}

TEST(Activity, TellsAWaitUntilThingsMoveAgain) {
  Activity activity;
  activity.begin(all_reduce(0, 10));
  activity.waits({6, true, 2, 40, 9, monotonic_ns() - 3'000'000'000});
  OperationState state = activity.state();
  EXPECT_EQ(state.waits_for, 6);
  EXPECT_TRUE(state.waits_to_send);
  EXPECT_EQ(state.lane, 2u);
  EXPECT_EQ(state.step, 40u);
  EXPECT_EQ(state.slice, 9u);
  EXPECT_GE(state.waits_seconds, 3);
  EXPECT_LT(state.waits_seconds, 60);
  activity.moves();
  EXPECT_EQ(activity.state().waits_for, -1);
  activity.waits({6, true, 2, 40, 9, monotonic_ns()});
  activity.end(false);
  EXPECT_EQ(activity.state().waits_for, -1) << "a complete operation does not wait";
}

TEST(Activity, CountsTheOperationsOfAGroupAndTurnsToTheOneThatWaits) {
  Activity activity;
  activity.begin(all_reduce(4, 10));
  activity.begin(all_reduce(5, 20));
  activity.begin({CollectiveKind::kSendRecv, true, 7, 0, 1, 0, 30});
  OperationState state = activity.state();
  EXPECT_EQ(state.together, 3u);
  EXPECT_EQ(state.number, 4u);
  activity.turn_to(all_reduce(5, 20));
  state = activity.state();
  EXPECT_EQ(state.number, 5u);
  EXPECT_EQ(state.count, 20u);
  EXPECT_EQ(state.begun, 3u);
  activity.end(false);
  activity.begin(all_reduce(6, 10));
  EXPECT_EQ(activity.state().together, 1u);
  EXPECT_EQ(activity.state().number, 6u);
}

TEST(Activity, NeverShowsAMixtureOfTwoCalls) {
  Activity activity;
  std::atomic<bool> done{false};
  std::thread caller([&] {
    for (uint64_t n = 1; !done; n++) {
      activity.begin(all_reduce(n, n % 3 == 0 ? n : 1 + n / 2));
      activity.end(false);
    }
  });
  for (int i = 0; i < test_samples(100000); i++) {
    const OperationState state = activity.state();
    if (state.begun == 0) continue;
    ASSERT_EQ(state.number, state.begun);
    ASSERT_EQ(state.count, state.number % 3 == 0 ? state.number : 1 + state.number / 2);
  }
  done = true;
  caller.join();
}

}  // namespace
}  // namespace weft::test
