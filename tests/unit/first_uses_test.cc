// Ranks take turns with streams that are new to them, and only with those.
#include "src/exec/first_uses.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace weft {
namespace {

bool takes_turn(FirstUses& uses, uint64_t id) { return uses.turn({{id}}).owns_lock(); }

TEST(FirstUses, OnlyNewStreamsTakeATurn) {
  FirstUses mine;
  EXPECT_TRUE(takes_turn(mine, 1));
  EXPECT_FALSE(takes_turn(mine, 1));
  const std::array<uint64_t, 2> both{1, 2};
  EXPECT_TRUE(mine.turn(both).owns_lock());
  EXPECT_FALSE(mine.turn(both).owns_lock());
}

TEST(FirstUses, AnotherRanksStreamsAreNewToThisOne) {
  FirstUses mine, theirs;
  EXPECT_TRUE(takes_turn(mine, 1));
  EXPECT_TRUE(takes_turn(theirs, 1));
}

TEST(FirstUses, AStreamThatIsNotKnownIsAlwaysNew) {
  FirstUses mine;
  EXPECT_TRUE(takes_turn(mine, 0));
  EXPECT_TRUE(takes_turn(mine, 0));
}

TEST(FirstUses, TheOldestAreForgotten) {
  FirstUses mine;
  for (uint64_t id = 1; id <= FirstUses::kMostKnown + 1; id++) EXPECT_TRUE(takes_turn(mine, id));
  EXPECT_FALSE(takes_turn(mine, FirstUses::kMostKnown + 1));
  EXPECT_TRUE(takes_turn(mine, 1));
}

TEST(FirstUses, ARankWaitsForTheTurnOfAnother) {
  FirstUses mine, theirs;
  std::atomic<bool> gone = false;
  auto turn = mine.turn({{uint64_t{1}}});
  std::thread other([&] {
    const auto next = theirs.turn({{uint64_t{2}}});
    EXPECT_TRUE(gone || !next.owns_lock());
  });
  std::this_thread::sleep_for(FirstUses::kLongestWait / 10);
  gone = true;
  turn.unlock();
  other.join();
}

TEST(FirstUses, NobodyWaitsForWhatIsKnown) {
  FirstUses mine, theirs;
  EXPECT_TRUE(takes_turn(theirs, 2));
  const auto turn = mine.turn({{uint64_t{1}}});
  std::thread([&] {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_FALSE(takes_turn(theirs, 2));
    EXPECT_LT(std::chrono::steady_clock::now() - began, FirstUses::kLongestWait);
  }).join();
}

TEST(FirstUses, ARankGoesOnWithoutATurnThatDoesNotCome) {
  FirstUses mine, theirs;
  const auto turn = mine.turn({{uint64_t{1}}});
  std::thread([&] {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_FALSE(takes_turn(theirs, 2));
    EXPECT_GE(std::chrono::steady_clock::now() - began, FirstUses::kLongestWait);
  }).join();
}

}  // namespace
}  // namespace weft
