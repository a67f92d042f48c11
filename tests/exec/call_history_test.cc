// Ranks compare their calls with those of others.
#include "src/exec/call_history.h"

#include <gtest/gtest.h>

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
