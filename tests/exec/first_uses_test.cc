// Ranks know which streams they have used, and take turns with new ones.
#include "src/exec/first_uses.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace weft {
namespace {

using Turn = FirstUses::Turn;
using Clock = std::chrono::steady_clock;

TEST(FirstUses, AStreamIsNewOnce) {
  FirstUses mine, theirs;
  EXPECT_TRUE(mine.is_new(1));
  EXPECT_FALSE(mine.is_new(1));
  EXPECT_TRUE(mine.is_new(2));
  EXPECT_TRUE(theirs.is_new(1)) << "to each rank";
}

TEST(FirstUses, AStreamThatIsNotKnownIsAlwaysNew) {
  FirstUses mine;
  EXPECT_TRUE(mine.is_new(0));
  EXPECT_TRUE(mine.is_new(0));
}

TEST(FirstUses, TheOldestAreForgotten) {
  FirstUses mine;
  for (uint64_t id = 1; id <= FirstUses::kMostKnown + 1; id++) EXPECT_TRUE(mine.is_new(id));
  EXPECT_FALSE(mine.is_new(FirstUses::kMostKnown + 1));
  EXPECT_TRUE(mine.is_new(1));
}

TEST(FirstUses, ATurnThatIsOverIsTheNextOnes) {
  EXPECT_FALSE(Turn().taken());
  for (int i = 0; i < 3; i++) EXPECT_TRUE(Turn::take().taken());
  Turn kept = Turn::take();
  Turn moved = std::move(kept);
  EXPECT_TRUE(moved.taken());
  EXPECT_FALSE(Turn::take().taken()) << "while another one has it";
  moved = Turn();
  EXPECT_TRUE(Turn::take().taken());
}

TEST(FirstUses, ARankWaitsForTheTurnOfAnother) {
  std::atomic<bool> gone = false;
  Turn turn = Turn::take();
  std::thread other([&] {
    const Turn next = Turn::take();
    EXPECT_TRUE(gone || !next.taken());
  });
  std::this_thread::sleep_for(FirstUses::kLongestWait / 10);
  gone = true;
  turn = Turn();
  other.join();
}

TEST(FirstUses, ARankGoesOnWithoutATurnThatDoesNotCome) {
  const Turn turn = Turn::take();
  std::thread([&] {
    const auto began = Clock::now();
    EXPECT_FALSE(Turn::take().taken());
    EXPECT_GE(Clock::now() - began, FirstUses::kLongestWait);
  }).join();
}

TEST(FirstUses, OneHasTheTurnAtATime) {
  std::atomic<int> inside = 0, most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) {
        const Turn turn = Turn::take();
        if (!turn.taken()) continue;
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
