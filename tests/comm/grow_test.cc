// ncclCommGetUniqueId and ncclCommGrow.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// `old` ranks become `all`. Rank `root` makes the id.
void grow(int old, int all, int root) {
  const ncclUniqueId id = new_unique_id();
  std::promise<ncclUniqueId> made;
  std::shared_future<ncclUniqueId> grow_id = made.get_future().share();
  run_threads(all, [&](int rank) {
    ncclComm_t grown = nullptr;
    if (rank >= old) {
      const ncclUniqueId given = grow_id.get();
      WEFT_OK(ncclCommGrow(nullptr, all, &given, rank, &grown, nullptr));
    } else {
      ncclComm_t comm = nullptr;
      WEFT_OK(ncclCommInitRank(&comm, old, id, rank));
      ncclUniqueId mine;
      if (rank == root) {
        WEFT_OK(ncclCommGetUniqueId(comm, &mine));
        made.set_value(mine);
      }
      WEFT_OK(ncclCommGrow(comm, all, rank == root ? &mine : nullptr, -1, &grown, nullptr));
      expect_all_reduce_works(comm);
      WEFT_OK(ncclCommDestroy(comm));
    }
    ASSERT_NE(grown, nullptr);
    EXPECT_EQ(rank_of(grown), rank);
    EXPECT_EQ(size_of(grown), all);
    expect_all_reduce_works(grown);
    expect_alltoall_works(grown);
    WEFT_OK(ncclCommDestroy(grown));
  });
}

TEST(Grow, NewRanksJoinAndOldRanksKeepTheirNumbers) {
  grow(3, 5, 0);
  grow(1, 4, 0);
}

TEST(Grow, AnyExistingRankCanMakeTheId) {
  grow(3, 4, 1);
  grow(4, 5, 3);
}

TEST(Grow, NonBlockingRanksGetTheCommunicatorWhenItIsDone) {
  const ncclUniqueId id = new_unique_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclComm_t grown = nullptr;
  ASSERT_NE(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  ASSERT_EQ(settle(comm), ncclSuccess);
  ncclUniqueId more;
  WEFT_OK(ncclCommGetUniqueId(comm, &more));
  EXPECT_EQ(ncclCommGrow(comm, 2, &more, -1, &grown, nullptr), ncclInProgress);
  EXPECT_EQ(grown, nullptr);
  ncclResult_t state = ncclSuccess;
  WEFT_OK(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclInProgress);
  std::thread other([&more] {
    ncclComm_t second = nullptr;
    WEFT_OK(ncclCommGrow(nullptr, 2, &more, 1, &second, nullptr));
    expect_all_reduce_works(second);
    WEFT_OK(ncclCommDestroy(second));
  });
  EXPECT_EQ(settle(comm), ncclSuccess);
  ASSERT_NE(grown, nullptr);
  std::vector<int> data(100, 1);  // the other rank adds 2
  ncclAllReduce(data.data(), data.data(), 100, ncclInt32, ncclSum, grown, nullptr);
  EXPECT_EQ(settle(grown), ncclSuccess);
  EXPECT_EQ(data[0], 3);
  other.join();
  WEFT_OK(ncclCommDestroy(grown));
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(Grow, AnIdIsForOneGrowthOnly) {
  CommSet set(1);
  ncclUniqueId first;
  ncclUniqueId second;
  WEFT_OK(ncclCommGetUniqueId(set[0], &first));
  EXPECT_EQ(ncclCommGetUniqueId(set[0], &second), ncclInvalidUsage);
  ncclComm_t grown = nullptr;
  std::thread other([first] {
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommGrow(nullptr, 2, &first, 1, &comm, nullptr));
    WEFT_OK(ncclCommDestroy(comm));
  });
  WEFT_OK(ncclCommGrow(set[0], 2, &first, -1, &grown, nullptr));
  other.join();
  EXPECT_EQ(ncclCommGrow(set[0], 2, &first, -1, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(grown, nullptr);
  WEFT_OK(ncclCommGetUniqueId(set[0], &second));
}

TEST(Grow, BadArgumentsAreRefused) {
  CommSet set(2);
  const ncclUniqueId stranger = new_unique_id();
  ncclComm_t grown = set[0];
  EXPECT_EQ(ncclCommGrow(set[0], 2, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(grown, nullptr);
  EXPECT_EQ(ncclCommGrow(set[0], 3, nullptr, 0, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(set[0], 3, &stranger, -1, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(nullptr, 3, &stranger, -1, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(nullptr, 3, &stranger, 3, &grown, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(set[0], 3, nullptr, -1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetUniqueId(set[0], nullptr), ncclInvalidArgument);
}

TEST(Grow, WithoutAnIdItFailsOnAllRanks) {
  CommSet set(2);
  run_threads(2, [&](int rank) {
    ncclComm_t grown = nullptr;
    EXPECT_EQ(ncclCommGrow(set[rank], 3, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
    EXPECT_EQ(grown, nullptr);
    expect_all_reduce_works(set[rank]);
  });
}

}  // namespace
}  // namespace weft::test
