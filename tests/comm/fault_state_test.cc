// One report of a failure counts, the same on every rank.
#include "src/comm/fault_state.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft::test {
namespace {

News report(int reporter, int64_t when_us, bool primary = true) {
  return {News::Kind::kDied, primary, 1, reporter, ncclRemoteError, when_us, "its process ended"};
}

TEST(FaultState, TakesTheEarliestReportInWhateverOrderTheyCome) {
  FaultState one, other;
  one.add(report(2, 200), "second");
  one.add(report(3, 100), "first");
  other.add(report(3, 100), "first");
  other.add(report(2, 200), "second");
  EXPECT_EQ(one.settle().text, "first");
  EXPECT_EQ(other.settle().text, "first");
  EXPECT_EQ(one.settle().code, ncclRemoteError);
}

TEST(FaultState, PrefersACauseToItsConsequencesWhateverTheClocksSay) {
  FaultState state;
  state.add(report(2, 100, false), "consequence");
  state.add(report(3, 900), "cause");
  EXPECT_EQ(state.settle().text, "cause");
}

TEST(FaultState, NamesTheFirstOperationThatADeathStopped) {
  FaultState state;
  state.add(report(2, 100), "rank 1 died");
  News stuck = report(3, 300, false);
  stuck.kind = News::Kind::kGaveUp;
  state.add(stuck, "rank 3 waited for it in operation 7");
  stuck.reporter = 0;
  stuck.when_us = 200;
  state.add(stuck, "rank 0 waited for it in operation 7");
  EXPECT_EQ(state.settle().text, "rank 1 died; rank 0 waited for it in operation 7");
}

TEST(FaultState, NamesWhatAGpuWaitedForWhichIsNoFailure) {
  FaultState state;
  News stuck = report(3, 300, false);
  stuck.kind = News::Kind::kStuck;
  EXPECT_FALSE(stuck.is_failure() || stuck.is_departure());
  state.add_stuck(stuck, "rank 3: its GPU waits");
  EXPECT_FALSE(state.known());
  state.add(report(2, 100), "rank 1 died");
  stuck.when_us = 200;
  stuck.reporter = 0;
  state.add_stuck(stuck, "rank 0: its GPU waits");
  EXPECT_EQ(state.settle().text, "rank 1 died; rank 0: its GPU waits");
  stuck.when_us = 100;
  state.add_stuck(stuck, "too late");
  EXPECT_EQ(state.get().text, "rank 1 died; rank 0: its GPU waits");
}

TEST(FaultState, SaysNothingBeforeItIsSettledAndNothingElseAfterwards) {
  FaultState state;
  EXPECT_FALSE(state.wait_known(std::chrono::milliseconds(1)));
  state.add(report(2, 200), "first");
  EXPECT_TRUE(state.known());
  EXPECT_EQ(state.get().code, ncclSuccess);
  EXPECT_EQ(state.settle().text, "first");
  state.add(report(3, 100), "too late");
  EXPECT_EQ(state.get().text, "first");
}

TEST(NewsOnTheWire, ComeOutAsTheyWentIn) {
  const News news = report(7, 123456789);
  const auto read = News::decode(news.encode());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, news.kind);
  EXPECT_EQ(read->rank, 1);
  EXPECT_EQ(read->reporter, 7);
  EXPECT_EQ(read->code, ncclRemoteError);
  EXPECT_EQ(read->when_us, 123456789);
  EXPECT_EQ(read->text, news.text);
}

TEST(NewsOnTheWire, AreRefusedIfTheyAreNone) {
  std::string bytes = report(7, 1).encode();
  EXPECT_FALSE(News::decode(bytes.substr(0, 10)));
  bytes[0] = 9;
  EXPECT_FALSE(News::decode(bytes));
}

}  // namespace
}  // namespace weft::test
