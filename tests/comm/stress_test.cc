// Many operations, many ranks, ranks out of step.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/case_list.h"
#include "tests/support/conformance.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(Stress, AThousandSmallOperationsOfMixedKindsBackToBack) {
  constexpr int kRanks = 4;
  std::vector<Case> cases = random_cases(kRanks, kSanitized ? 200 : 1000, mix(test_seed(), 6));
  for (Case& c : cases) c.count %= 64;
  Watchdog watchdog(kRanks);
  run_ranks_as_threads(
      kRanks, [&](int rank, ncclComm_t comm) { run_cases(cases, rank, kRanks, comm, &watchdog); },
      std::chrono::minutes(5));
}

TEST(Stress, BroadcastFromARootThatRunsAhead) {
  run_ranks_as_threads(3, [](int rank, ncclComm_t comm) {
    // Each round has its own buffer, so that the root may go on while the others still sleep.
    constexpr int kRounds = 100;
    std::vector<std::vector<int>> data;
    for (int i = 0; i < kRounds; ++i) data.emplace_back(700, rank == 0 ? i : -1);
    for (int i = 0; i < kRounds; ++i) {
      if (rank != 0 && i % 10 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * rank));
      auto& d = data[static_cast<size_t>(i)];
      WEFT_OK(ncclBroadcast(d.data(), d.data(), d.size(), ncclInt32, 0, comm, nullptr));
      EXPECT_EQ(d, std::vector<int>(700, i));
      if (rank == 0) std::fill(d.begin(), d.end(), -2);  // the send buffer is free to use again
    }
  });
}

TEST(Stress, RanksThatArriveAtRandomTimes) {
  run_ranks_as_threads(5, [](int rank, ncclComm_t comm) {
    Random random(mix(99, static_cast<uint64_t>(rank)));
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
      expect_all_reduce_works(comm, 1 + static_cast<size_t>(i) * 211);
    }
  });
}

TEST(Stress, TwoCommunicatorsUsedByTwoThreadsEachAtOnce) {
  constexpr int kRanks = 3;
  const ncclUniqueId ids[2] = {new_unique_id(), new_unique_id()};
  run_threads(2 * kRanks, [&](int thread) {
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRank(&comm, kRanks, ids[thread / kRanks], thread % kRanks));
    for (int i = 0; i < 200; ++i) expect_all_reduce_works(comm, static_cast<size_t>(i) * 13 + 1);
    WEFT_OK(ncclCommDestroy(comm));
  });
}

TEST(Stress, CommunicatorsCanBeMadeAndDestroyedAgainAndAgain) {
  const int rounds = kSanitized ? 5 : 30;
  for (int i = 0; i < rounds; ++i) {
    run_ranks_as_threads(3, [](int, ncclComm_t comm) { expect_all_reduce_works(comm, 10); });
  }
}

TEST(Scale, SixtyFourThreadsReduceExchangeAndSplit) {
  run_ranks_as_threads(64, [](int rank, ncclComm_t comm) {
    expect_all_reduce_works(comm, 1);
    expect_all_reduce_works(comm, 10000);
    expect_alltoall_works(comm);
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(comm, rank % 4, rank, &part, nullptr));
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(size_of(part), 16);
    expect_all_reduce_works(part);
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST(Scale, OneHundredTwentyEightThreadsReduceAndExchange) {
  if (kSanitized) GTEST_SKIP() << "sanitized: 64 ranks must do";
  run_ranks_as_threads(128, [](int, ncclComm_t comm) {
    EXPECT_EQ(size_of(comm), 128);
    expect_all_reduce_works(comm, 1);
    expect_all_reduce_works(comm, 10000);
    expect_alltoall_works(comm);
  });
}

TEST(Scale, SixtyFourRanksDrivenByOneThread) {
  CommSet set(64);
  std::vector<int> data(64, 1);
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 64; ++r) {
    int* x = &data[static_cast<size_t>(r)];
    WEFT_OK(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, set[r], nullptr));
  }
  WEFT_OK(ncclGroupEnd());
  EXPECT_EQ(data, std::vector<int>(64, 64));
}

}  // namespace
}  // namespace weft::test
