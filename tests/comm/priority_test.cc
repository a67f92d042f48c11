// Communicators of different classes in one process: right results, and nothing starves.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/environment.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr int kRanks = 2;

bool sums(ncclComm_t comm, size_t count, int rank) {
  std::vector<int> in(count, rank + 1), out(count, 0);
  if (ncclAllReduce(in.data(), out.data(), count, ncclInt32, ncclSum, comm, nullptr) != ncclSuccess)
    return false;
  return out == std::vector<int>(count, 3);
}

// Small calls of the high class follow each other without an end, until the large call of the low
// class is done.
TEST(Priorities, LetALargeLowCallFinishBesideEndlessHighOnes) {
  CommSet high(kRanks), low(kRanks);
  for (int r = 0; r < kRanks; r++) {
    WEFT_OK(weftCommSetPriority(high[r], 1));
    WEFT_OK(weftCommSetPriority(low[r], -1));
  }
  std::atomic<int> done{0}, rounds{0};
  std::atomic<bool> last{false};
  run_threads(
      2 * kRanks,
      [&](int thread) {
        const int rank = thread % kRanks;
        if (thread < kRanks) {
          for (int k = 0; k < 3; k++) EXPECT_TRUE(sums(low[rank], size_t{8} << 20, rank));
          done++;
          return;
        }
        // Both ranks must stop after the same call.
        for (int over = 0; over == 0;) {
          EXPECT_TRUE(sums(high[rank], 1024, rank));
          int stop = done == kRanks ? 1 : 0;
          WEFT_OK(ncclAllReduce(&stop, &over, 1, ncclInt32, ncclMin, high[rank], nullptr));
          rounds++;
        }
      },
      patience(std::chrono::minutes(2)));
  EXPECT_EQ(done, kRanks);
  EXPECT_GT(rounds, 0);
}

// One thread drives both classes in one group.
TEST(Priorities, MayDifferInAGroup) {
  CommSet high(kRanks), low(kRanks);
  for (int r = 0; r < kRanks; r++) {
    WEFT_OK(weftCommSetPriority(high[r], 1));
    WEFT_OK(weftCommSetPriority(low[r], -1));
  }
  constexpr size_t kLarge = size_t{1} << 20, kSmall = 100;
  std::vector<std::vector<int>> large(kRanks, std::vector<int>(kLarge, 1)),
      small(kRanks, std::vector<int>(kSmall, 2));
  for (int k = 0; k < 5; k++) {
    WEFT_OK(ncclGroupStart());
    for (int r = 0; r < kRanks; r++) {
      auto& l = large[static_cast<size_t>(r)];
      auto& s = small[static_cast<size_t>(r)];
      WEFT_OK(ncclAllReduce(l.data(), l.data(), kLarge, ncclInt32, ncclMax, low[r], nullptr));
      WEFT_OK(ncclAllReduce(s.data(), s.data(), kSmall, ncclInt32, ncclSum, high[r], nullptr));
    }
    WEFT_OK(ncclGroupEnd());
  }
  for (int r = 0; r < kRanks; r++) {
    EXPECT_EQ(large[static_cast<size_t>(r)], std::vector<int>(kLarge, 1));
    EXPECT_EQ(small[static_cast<size_t>(r)], std::vector<int>(kSmall, 64));
  }
}

TEST(Priorities, ComeFromTheEnvironmentToo) {
  {
    const ScopedEnvironment set({{"WEFT_PRIORITY", "experts/high;low"}});
    run_ranks_as_threads(kRanks,
                         [](int rank, ncclComm_t comm) { EXPECT_TRUE(sums(comm, 1 << 20, rank)); });
  }
  const ScopedEnvironment wrong({{"WEFT_PRIORITY", "experts/urgent"}});
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, new_unique_id(), 0), ncclInvalidUsage);
}

TEST(Priorities, HaveThreeClasses) {
  const CommSet set(1);
  EXPECT_EQ(weftCommSetPriority(set[0], 2), ncclInvalidArgument);
  EXPECT_EQ(weftCommSetPriority(set[0], -2), ncclInvalidArgument);
  EXPECT_EQ(weftCommSetPriority(nullptr, 0), ncclInvalidArgument);
  for (const int priority : {-1, 0, 1}) WEFT_OK(weftCommSetPriority(set[0], priority));
}

}  // namespace
}  // namespace weft::test
