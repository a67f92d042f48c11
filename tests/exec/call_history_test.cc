// Ranks compare their calls with those of others.
#include "src/exec/call_history.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace weft::test {
namespace {

const PastCall kCall{CollectiveKind::kBroadcast, 7, 0, 3, 4096};

TEST(CallHistory, KnowsTheLastCallsByTheirNumbers) {
  CallHistory history;
  EXPECT_FALSE(history.find(0));
  for (uint64_t n = 0; n < 100; n++) {
    PastCall call = kCall;
    call.bytes = n;
    history.add(n, call);
  }
  EXPECT_FALSE(history.find(0)) << "forgotten";
  EXPECT_FALSE(history.find(100)) << "not begun";
  ASSERT_TRUE(history.find(99));
  EXPECT_EQ(history.find(99)->bytes, 99u);
  EXPECT_EQ(history.find(60)->bytes, 60u);
}

TEST(CallHistory, EqualCallsCountAsOneOfTheLast) {
  CallHistory history;
  PastCall other = kCall;
  other.bytes = 8;
  history.add(0, other);
  for (uint64_t n = 1; n < 1000; n++) history.add(n, kCall);
  history.add(1000, other);
  history.add(1005, other);  // calls between them were no collectives of this rank
  EXPECT_EQ(history.find(0), other);
  EXPECT_EQ(history.find(1), kCall);
  EXPECT_EQ(history.find(999), kCall);
  EXPECT_EQ(history.find(1000), other);
  EXPECT_FALSE(history.find(1001));
  EXPECT_FALSE(history.find(1004));
  EXPECT_EQ(history.find(1005), other);
  EXPECT_FALSE(history.find(1006));
}

TEST(CallHistory, TellsItsLatestRuns) {
  CallHistory history;
  std::array<CallRun, 2> runs;
  EXPECT_EQ(history.latest(runs), 0u);
  PastCall other = kCall;
  other.bytes = 8;
  history.add(0, other);
  for (uint64_t n = 1; n < 10; n++) history.add(n, kCall);
  history.add(12, other);
  ASSERT_EQ(history.latest(runs), 2u);
  EXPECT_EQ(runs[0].first, 12u);
  EXPECT_EQ(runs[0].end, 13u);
  EXPECT_EQ(runs[0].call, other);
  EXPECT_EQ(runs[1].first, 1u);
  EXPECT_EQ(runs[1].end, 10u);
  EXPECT_EQ(runs[1].call, kCall);
  history.numbers_differ();
  EXPECT_EQ(history.latest(runs), 0u);
  EXPECT_EQ(history.find(12), other) << "for words it is good enough";
}

TEST(CallHistory, LeavesOutWhatRanksNeedNotHaveInCommon) {
  EXPECT_EQ(common_call(CollectiveKind::kAllToAllV, 7, 0, 0, 10),
            common_call(CollectiveKind::kAllToAllV, 7, 0, 0, 20));
  EXPECT_NE(common_call(CollectiveKind::kAllToAll, 7, 0, 0, 10),
            common_call(CollectiveKind::kAllToAll, 7, 0, 0, 20));
}

TEST(CallHistory, AReaderNeverSeesAMixtureOfTwoCalls) {
  CallHistory history;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t n = 0; n < 200'000; n++) {
      PastCall call = kCall;
      call.root = static_cast<int32_t>(n / 2);
      call.bytes = n / 2;
      history.add(n, call);
    }
    done = true;
  });
  uint64_t seen = 0;
  for (uint64_t n = 0; !done; n = n < 199'000 ? n + 997 : 0)
    for (uint64_t m = n; m < n + 997; m += 31)
      if (const auto call = history.find(m)) {
        EXPECT_EQ(call->bytes, m / 2);
        EXPECT_EQ(call->root, static_cast<int32_t>(m / 2));
        seen++;
      }
  writer.join();
  EXPECT_TRUE(history.find(199'999)) << seen;
}

TEST(CallHistory, GivesACallBackAsItWas) {
  CallHistory history;
  history.add(5, kCall);
  EXPECT_EQ(history.find(5), kCall);
  PastCall other = kCall;
  other.root = 2;
  EXPECT_NE(history.find(5), other);
}

TEST(CallHistory, DescribesCallsInWords) {
  EXPECT_EQ(describe(kCall), "broadcast of 4096 bytes (type float32, op sum, root 3)");
  EXPECT_STREQ(type_name(99), "?");
  EXPECT_STREQ(operator_name(99), "user");
}

}  // namespace
}  // namespace weft::test
