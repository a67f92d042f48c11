// Ranks know which streams they have used, and take turns at the gate with new streams.
#include "src/exec/stream_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace weft {
namespace {

using Pass = StreamGate::Pass;
using Clock = std::chrono::steady_clock;

TEST(StreamGate, AStreamIsNewOnce) {
  StreamGate mine, theirs;
  EXPECT_TRUE(mine.is_new(1));
  EXPECT_FALSE(mine.is_new(1));
  EXPECT_TRUE(mine.is_new(2));
  EXPECT_TRUE(theirs.is_new(1)) << "to each rank";
}

TEST(StreamGate, AStreamThatIsNotKnownIsAlwaysNew) {
  StreamGate mine;
  EXPECT_TRUE(mine.is_new(0));
  EXPECT_TRUE(mine.is_new(0));
}

TEST(StreamGate, TheOldestAreForgotten) {
  StreamGate mine;
  for (uint64_t id = 1; id <= StreamGate::kMostKnown + 1; id++) EXPECT_TRUE(mine.is_new(id));
  EXPECT_FALSE(mine.is_new(StreamGate::kMostKnown + 1));
  EXPECT_TRUE(mine.is_new(1));
}

TEST(StreamGate, ATurnThatIsOverIsTheNextOnes) {
  EXPECT_FALSE(Pass().taken());
  for (int i = 0; i < 3; i++) EXPECT_TRUE(Pass::take().taken());
  Pass kept = Pass::take();
  Pass moved = std::move(kept);
  EXPECT_TRUE(moved.taken());
  EXPECT_FALSE(Pass::take().taken()) << "while another one has it";
  moved = Pass();
  EXPECT_TRUE(Pass::take().taken());
}

TEST(StreamGate, ARankWaitsForTheTurnOfAnother) {
  std::atomic<bool> gone = false;
  Pass pass = Pass::take();
  std::thread other([&] {
    const Pass next = Pass::take();
    EXPECT_TRUE(gone || !next.taken());
  });
  std::this_thread::sleep_for(StreamGate::kLongestWait / 10);
  gone = true;
  pass = Pass();
  other.join();
}

TEST(StreamGate, ARankGoesOnWithoutATurnThatDoesNotCome) {
  const Pass pass = Pass::take();
  std::thread([&] {
    const auto began = Clock::now();
    EXPECT_FALSE(Pass::take().taken());
    EXPECT_GE(Clock::now() - began, StreamGate::kLongestWait);
  }).join();
}

TEST(StreamGate, OneHasTheTurnAtATime) {
  std::atomic<int> inside = 0, most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) {
        const Pass pass = Pass::take();
        if (!pass.taken()) continue;
        const int now = ++inside;
        if (now > most) most = now;
        --inside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace weft
