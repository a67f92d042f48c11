// Ranks that wait for long tell each other their calls: what they find, and what they leave alone.
#include "src/comm/stall_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace weft::test {
namespace {

// Two ranks on GPUs, which have launched calls and wait for one of them. What one tells, the other
// hears.
class StallExchangeTest : public testing::Test {
 protected:
  struct Rank {
    CommunicatorOptions options;
    host::RankContext context;
    std::unique_ptr<StallExchange> exchange;
    std::vector<std::string> disagreements;
  };

  StallExchangeTest() {
    for (int r = 0; r < 2; r++) {
      Rank &rank = ranks_[r], &other = ranks_[1 - r];
      rank.context.rank = rank.options.rank = r;
      rank.options.nranks = 2;
      rank.exchange = std::make_unique<StallExchange>(
          rank.options, rank.context, static_cast<uint64_t>(r),
          [&other](const News& news) { other.exchange->hear(news); },
          [&rank](const std::string& text) { rank.disagreements.push_back(text); });
    }
  }

  // As GpuLauncher::note_calls() does.
  void launch(int rank, uint64_t bytes) {
    host::RankContext& context = ranks_[rank].context;
    const uint64_t number = next_[rank]++;
    context.history.add(number, common_call(CollectiveKind::kAllReduce, 0, 0, 0, bytes));
    context.activity.begin({CollectiveKind::kAllReduce, false, 0, 0, 0, number, bytes});
    context.activity.launched();
  }
  void wait_for_the_other(int rank) {
    ranks_[rank].context.activity.waits({1 - rank});
    ranks_[rank].exchange->tell();
  }

  Rank ranks_[2];
  uint64_t next_[2] = {0, 0};
};

TEST_F(StallExchangeTest, FindsAnEarlierCallThatDiffers) {
  for (const uint64_t bytes : {100, 200, 300, 300}) launch(0, bytes);
  for (const uint64_t bytes : {100, 250, 300, 300}) launch(1, bytes);
  wait_for_the_other(0);
  ASSERT_EQ(ranks_[1].disagreements.size(), 1u);
  EXPECT_EQ(ranks_[1].disagreements[0].find("operation 1 is all_reduce of 200 bytes (type int8, op "
                                            "sum, root 0) on rank 0, but all_reduce of 250 bytes"),
            0u)
      << ranks_[1].disagreements[0];
}

// The rank that is waited for has launched less, and answers.
TEST_F(StallExchangeTest, FindsNothingInCallsThatOneRankHasNotMade) {
  for (const uint64_t bytes : {100, 200, 300}) launch(0, bytes);
  launch(1, 100);
  wait_for_the_other(0);
  wait_for_the_other(1);
  EXPECT_TRUE(ranks_[0].disagreements.empty() && ranks_[1].disagreements.empty());
  launch(1, 201);
  wait_for_the_other(1);
  EXPECT_EQ(ranks_[0].disagreements.size(), 1u);
}

TEST_F(StallExchangeTest, ComparesNoNumbersOnceARankHasCaptured) {
  launch(0, 100);
  launch(1, 200);
  ranks_[1].context.history.numbers_differ();
  wait_for_the_other(0);
  wait_for_the_other(1);
  EXPECT_TRUE(ranks_[0].disagreements.empty() && ranks_[1].disagreements.empty());
}

TEST_F(StallExchangeTest, RefusesWhatIsNoReport) {
  StallReport report, read;
  EXPECT_TRUE(StallReport::decode(report.encode(), read));
  EXPECT_FALSE(StallReport::decode(report.encode() + "x", read));
  report.runs = StallReport::kLatest + 1;
  EXPECT_FALSE(StallReport::decode(report.encode(), read));
  report.runs = 1;
  report.latest[0].call.kind = static_cast<CollectiveKind>(200);
  EXPECT_FALSE(StallReport::decode(report.encode(), read));
}

}  // namespace
}  // namespace weft::test
