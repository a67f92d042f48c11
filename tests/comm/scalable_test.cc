// ncclCommInitRankScalable: several unique ids, whose processes share the work of the rendezvous.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

std::vector<ncclUniqueId> new_ids(int count) {
  std::vector<ncclUniqueId> ids;
  for (int i = 0; i < count; i++) ids.push_back(new_unique_id());
  return ids;
}

TEST(Scalable, RanksOfAllIdsComeTogether) {
  for (const auto& [nranks, count] :
       std::vector<std::pair<int, int>>{{2, 2}, {5, 2}, {7, 3}, {8, 8}, {9, 1}, {33, 4}}) {
    std::vector<ncclUniqueId> ids = new_ids(count);
    run_threads(nranks, [&, nranks = nranks, count = count](int rank) {
      ncclComm_t comm = nullptr;
      ncclComm_t part = nullptr;
      WEFT_OK(ncclCommInitRankScalable(&comm, nranks, rank, count, ids.data(), nullptr));
      EXPECT_EQ(rank_of(comm), rank);
      expect_all_reduce_works(comm);
      WEFT_OK(ncclCommSplit(comm, rank % 2, rank, &part, nullptr));
      expect_all_reduce_works(part);
      WEFT_OK(ncclCommDestroy(part));
      WEFT_OK(ncclCommDestroy(comm));
    });
  }
}

// Nobody serves the second id, so its ranks cannot join, and the others miss them.
TEST(Scalable, EveryIdMustHaveItsProcess) {
  const ScopedEnvironment environment{{"WEFT_INIT_TIMEOUT", "1"}};
  std::vector<ncclUniqueId> ids = new_ids(2);
  ids[1].internal[20] = static_cast<char>(ids[1].internal[20] + 1);  // of its secret
  run_threads(4, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_NE(ncclCommInitRankScalable(&comm, 4, rank, 2, ids.data(), nullptr), ncclSuccess);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Scalable, AnIdThatIsThereTwiceIsRefused) {
  std::vector<ncclUniqueId> ids = new_ids(2);
  ids.push_back(ids[1]);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 3, 0, 3, ids.data(), nullptr), ncclInvalidArgument);
}

TEST(Scalable, ARankThatAbortsEndsTheInitOfRanksOfOtherIds) {
  std::vector<ncclUniqueId> ids = new_ids(3);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> comms(3, nullptr);
  for (int r = 0; r < 2; r++)
    EXPECT_EQ(
        ncclCommInitRankScalable(&comms[static_cast<size_t>(r)], 3, r, 3, ids.data(), &config),
        ncclInProgress);
  usleep(200000);  // until both wait for the third
  WEFT_OK(ncclCommAbort(comms[1]));
  EXPECT_EQ(settle(comms[0]), ncclRemoteError) << ncclGetLastError(comms[0]);
  WEFT_OK(ncclCommAbort(comms[0]));
}

// With WEFT_TEST_RANKS=1024 this takes less than five seconds on two cores that have nothing else
// to do, and checks that. 256 ranks, without a bound, are for machines that have other work or few
// descriptors: a rank needs up to four.
TEST(Scalable, ManyRanksComeUpInOneProcess) {
  const char* asked = std::getenv("WEFT_TEST_RANKS");
#ifdef WEFT_TEST_SANITIZED
  const int nranks = 128;
#else
  const int nranks = asked ? std::atoi(asked) : 256;
#endif
  rlimit descriptors{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  if (descriptors.rlim_cur < static_cast<rlim_t>(4 * nranks))
    GTEST_SKIP() << "a process here has " << descriptors.rlim_cur << " descriptors";
  std::vector<ncclUniqueId> ids = new_ids(8);
  std::vector<ncclComm_t> comms(static_cast<size_t>(nranks), nullptr);
  const auto begin = std::chrono::steady_clock::now();
  run_threads(
      nranks,
      [&](int rank) {
        WEFT_OK(ncclCommInitRankScalable(&comms[static_cast<size_t>(rank)], nranks, rank, 8,
                                         ids.data(), nullptr));
      },
      std::chrono::seconds(100));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  std::printf("%d ranks with 8 ids: %.2f s\n", nranks, wall.count());
  if (asked) {
    EXPECT_LT(wall.count(), 5);
  }
  run_threads(
      nranks, [&](int rank) { WEFT_OK(ncclCommDestroy(comms[static_cast<size_t>(rank)])); },
      std::chrono::seconds(100));
}

}  // namespace
}  // namespace weft::test
