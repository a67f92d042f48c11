// Ranks that wait for long tell each other their calls: what they find, and what they leave alone.
#include "src/comm/stall_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
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
      rank.context.messages.reset(2);
      rank.exchange = std::make_unique<StallExchange>(
          rank.options, rank.context,
          StallExchange::Surroundings{
              static_cast<uint64_t>(r),
              "",
              "",
              {},
              [&other](const News& news) { other.exchange->hear(news); },
              [&rank](const std::string& text) { rank.disagreements.push_back(text); },
              {},
              [] { return std::vector<Sibling>(); },
              [] { return true; },
              [](int) { return true; },
              [this](int) { return gone_; }});
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
  bool gone_ = false;
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

// Whatever differs, both sides are named, and so is the call.
TEST_F(StallExchangeTest, FindsEveryKindOfDifference) {
  using Kind = CollectiveKind;
  const PastCall same = common_call(Kind::kBroadcast, ncclFloat32, ncclSum, 0, 64);
  const struct {
    PastCall other;
    const char* word;
  } differences[] = {
      {common_call(Kind::kReduce, ncclFloat32, ncclSum, 0, 64), "reduce of 64 bytes"},
      {common_call(Kind::kBroadcast, ncclFloat32, ncclSum, 0, 32), "broadcast of 32 bytes"},
      {common_call(Kind::kBroadcast, ncclInt32, ncclSum, 0, 64), "type int32"},
      {common_call(Kind::kBroadcast, ncclFloat32, ncclMax, 0, 64), "op max"},
      {common_call(Kind::kBroadcast, ncclFloat32, ncclSum, 1, 64), "root 1"},
  };
  const auto add = [&](int rank, const PastCall& call) {
    const uint64_t number = next_[rank]++;
    ranks_[rank].context.history.add(number, call);
    ranks_[rank].context.activity.begin(
        {call.kind, false, call.type, call.op, call.root, number, call.bytes});
    ranks_[rank].context.activity.launched();
  };
  for (const auto& [other, word] : differences)
    for (const bool swapped : {false, true}) {  // two calls in another order
      for (int rank = 0; rank < 2; rank++) {
        ranks_[rank].disagreements.clear();
        add(rank, common_call(Kind::kAllReduce, ncclInt8, ncclSum, 0, 8));
      }
      const std::string number = std::to_string(next_[0]);
      add(0, same);
      add(1, other);
      if (swapped) add(0, other);
      if (swapped) add(1, same);
      wait_for_the_other(0);
      ASSERT_EQ(ranks_[1].disagreements.size(), 1u) << word;
      const std::string& text = ranks_[1].disagreements[0];
      EXPECT_EQ(
          text.find("operation " + number +
                    " is broadcast of 64 bytes (type float32, op sum, root 0) on rank 0, but"),
          0u)
          << text;
      EXPECT_NE(text.find(word), std::string::npos) << text;
      EXPECT_NE(text.find("on rank 1"), std::string::npos) << text;
      // The next difference is looked for in calls that agree so far.
      for (Rank& rank : ranks_) std::destroy_at(&rank.context.history);
      for (Rank& rank : ranks_) std::construct_at(&rank.context.history);
      next_[0] = next_[1] = 0;
    }
}

// Streams do not wait for each other, so GPUs that wait in two communicators may go on.
TEST_F(StallExchangeTest, FindsNothingInLaunchedCallsThatOthersLack) {
  launch(0, 100);
  wait_for_the_other(0);
  wait_for_the_other(1);
  EXPECT_TRUE(ranks_[0].disagreements.empty() && ranks_[1].disagreements.empty());
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

class LastWords : public StallExchangeTest {
 protected:
  void broadcast(int rank, int root) {
    ranks_[rank].context.history.add(next_[rank]++,
                                     common_call(CollectiveKind::kBroadcast, 0, 0, root, 8));
  }
  // Seconds that the last words of rank 0 take.
  double leave(std::string* text = nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string said = ranks_[0].exchange->say_last_words(std::chrono::milliseconds(300));
    if (text != nullptr) *text = said;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

TEST_F(LastWords, FindRootsThatDiffer) {
  broadcast(0, 0);
  broadcast(1, 1);
  leave();
  ASSERT_FALSE(ranks_[1].disagreements.empty());
  EXPECT_NE(ranks_[1].disagreements[0].find("root 1) on rank 1"), std::string::npos);
}

// Rank 1 has said its last words before rank 0 makes the call. Nobody answers for it any more.
TEST_F(LastWords, AreComparedWithCallsThatCameLater) {
  broadcast(1, 1);
  ranks_[1].exchange->say_last_words(std::chrono::milliseconds(1));
  EXPECT_TRUE(ranks_[0].disagreements.empty());
  broadcast(0, 0);
  leave();
  ASSERT_FALSE(ranks_[0].disagreements.empty());
  EXPECT_NE(ranks_[0].disagreements[0].find("root 1) on rank 1"), std::string::npos);
}

TEST_F(LastWords, WaitForRanksThatHaveNotBegunARootedCall) {
  broadcast(0, 0);
  EXPECT_GE(leave(), 0.3);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    broadcast(1, 0);
  });
  const double seconds = leave();
  late.join();
  EXPECT_GE(seconds, 0.05);
  EXPECT_LT(seconds, 0.29);
  broadcast(0, 0);
  gone_ = true;
  EXPECT_LT(leave(), 0.1);
  EXPECT_TRUE(ranks_[0].disagreements.empty() && ranks_[1].disagreements.empty());
}

TEST_F(LastWords, DoNotWaitForOthersAfterACallThatNeedsThemAll) {
  launch(0, 8);
  EXPECT_LT(leave(), 0.1);
}

TEST_F(LastWords, FindSendsThatWereNeverReceived) {
  ranks_[1].context.messages.add(true, 0);
  ranks_[1].context.messages.add(true, 0);
  ranks_[0].context.messages.add(false, 1);
  std::string text;
  leave(&text);
  EXPECT_EQ(text, "1 of 2 sends from rank 1 to rank 0 were never received");
  ranks_[0].context.messages.add(false, 1);
  leave(&text);
  EXPECT_EQ(text, "");
}

// No field has its default.
StallReport full_report() {
  StallReport report;
  report.state = {OperationState::Phase::kFailed,
                  CollectiveKind::kSendRecv,
                  true,
                  static_cast<uint8_t>(ncclFloat8e5m2),
                  200,
                  -3,
                  uint64_t{1} << 40,
                  5,
                  6,
                  7,
                  8.5,
                  9,
                  true,
                  10,
                  11,
                  uint64_t{1} << 41,
                  12.25};
  report.asks = true;
  report.earlier = 13;
  report.needs_receive = report.closed = true;
  for (uint64_t i = 0; i < StallReport::kMostHops; i++)
    report.hops.push_back(
        {{i, 18}, ~i, 19, 20, 21, i % 2 == 0, std::string(StallReport::kMostText, 't'), "u"});
  report.last_words = StallReport::LastWords::kTells;
  report.calls = 22;
  for (int i = 0; i < static_cast<int>(StallReport::kMostSends); i++)
    report.sends.push_back({i, uint64_t{23} << 40});
  report.runs = StallReport::kLatest;
  for (uint32_t i = 0; i < report.runs; i++)
    report.latest[i] = {i, i + 14, {CollectiveKind::kAllToAllV, 15, 255, -16, i + 17}};
  return report;
}

TEST_F(StallExchangeTest, AReportComesBackEqual) {
  const StallReport sent = full_report();
  StallReport read;
  ASSERT_TRUE(StallReport::decode(sent.encode(), read));
  const OperationState &a = read.state, &b = sent.state;
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.sends, b.sends);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.begun, b.begun);
  EXPECT_EQ(a.together, b.together);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.waits_for, b.waits_for);
  EXPECT_EQ(a.waits_to_send, b.waits_to_send);
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.slice, b.slice);
  EXPECT_EQ(a.waits_seconds, b.waits_seconds);
  EXPECT_EQ(read.asks, sent.asks);
  EXPECT_EQ(read.earlier, sent.earlier);
  EXPECT_EQ(read.needs_receive, sent.needs_receive);
  EXPECT_EQ(read.closed, sent.closed);
  EXPECT_EQ(read.hops, sent.hops);
  EXPECT_EQ(read.last_words, sent.last_words);
  EXPECT_EQ(read.calls, sent.calls);
  EXPECT_EQ(read.sends, sent.sends);
  ASSERT_EQ(read.runs, sent.runs);
  for (uint32_t i = 0; i < sent.runs; i++) {
    EXPECT_EQ(read.latest[i].first, sent.latest[i].first);
    EXPECT_EQ(read.latest[i].end, sent.latest[i].end);
    EXPECT_EQ(read.latest[i].call, sent.latest[i].call);
  }
  EXPECT_EQ(read.encode(), sent.encode());
  EXPECT_TRUE(StallReport::decode(StallReport{}.encode(), read));
  EXPECT_EQ(read.runs, 0u);
}

TEST_F(StallExchangeTest, RefusesWhatIsNoReport) {
  const std::string good = full_report().encode();
  StallReport read;
  read.earlier = 1;
  for (size_t length = 0; length < good.size(); length++)
    EXPECT_FALSE(StallReport::decode(good.substr(0, length), read)) << length;
  EXPECT_FALSE(StallReport::decode(good + "x", read));

  const auto refuses = [&](const char* what, const std::function<void(StallReport&)>& change) {
    StallReport report = full_report();
    change(report);
    EXPECT_FALSE(StallReport::decode(report.encode(), read)) << what;
  };
  constexpr auto kNoKind = static_cast<CollectiveKind>(kNamedKinds + 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  refuses("phase", [](StallReport& r) { r.state.phase = static_cast<OperationState::Phase>(5); });
  refuses("kind", [](StallReport& r) { r.state.kind = kNoKind; });
  refuses("type", [](StallReport& r) { r.state.type = 16; });
  refuses("seconds", [](StallReport& r) { r.state.seconds = -1; });
  refuses("waits_seconds", [](StallReport& r) { r.state.waits_seconds = kInfinity; });
  refuses("long text", [](StallReport& r) { r.hops[5].who += 't'; });
  refuses("text with a zero", [](StallReport& r) { r.hops[5].who[3] = 0; });
  refuses("last words",
          [](StallReport& r) { r.last_words = static_cast<StallReport::LastWords>(3); });
  refuses("many sends", [](StallReport& r) { r.sends.push_back({}); });
  refuses("long chain", [](StallReport& r) { r.hops.push_back(r.hops[0]); });
  for (const size_t run : {size_t{0}, StallReport::kLatest - 1}) {
    refuses("run's kind", [&](StallReport& r) { r.latest[run].call.kind = kNoKind; });
    refuses("run's type", [&](StallReport& r) { r.latest[run].call.type = 16; });
    refuses("run's first", [&](StallReport& r) { r.latest[run].first = r.latest[run].end + 1; });
  }

  // A bool has no other values in memory, so these change bytes.
  const auto refuses_byte = [&](const char* what, const std::function<void(StallReport&)>& clear) {
    StallReport report = full_report();
    clear(report);
    std::string bytes = report.encode();
    const auto at = std::mismatch(bytes.begin(), bytes.end(), good.begin()).first;
    *at = 2;
    EXPECT_FALSE(StallReport::decode(bytes, read)) << what;
  };
  refuses_byte("sends", [](StallReport& r) { r.state.sends = false; });
  refuses_byte("waits_to_send", [](StallReport& r) { r.state.waits_to_send = false; });
  refuses_byte("asks", [](StallReport& r) { r.asks = false; });
  refuses_byte("needs_receive", [](StallReport& r) { r.needs_receive = false; });
  refuses_byte("closed", [](StallReport& r) { r.closed = false; });

  // More runs than fit, and all their bytes.
  StallReport report = full_report();
  report.runs--;
  const size_t run = good.size() - report.encode().size();
  std::string more = good + good.substr(good.size() - run);
  const size_t count_at = good.size() - StallReport::kLatest * run - sizeof(uint32_t);
  ASSERT_EQ(more[count_at], static_cast<char>(StallReport::kLatest));
  more[count_at]++;
  EXPECT_FALSE(StallReport::decode(more, read));

  EXPECT_EQ(read.earlier, 1u) << "a refusal must not change the report";
}

}  // namespace
}  // namespace weft::test
