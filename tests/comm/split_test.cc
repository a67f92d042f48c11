// ncclCommSplit and ncclCommShrink.
#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(CommSplit, GroupsByColor) {
  run_ranks_as_threads(7, [](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(comm, rank % 3, rank, &part, nullptr));
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(rank_of(part), rank / 3);
    EXPECT_EQ(size_of(part), rank % 3 == 0 ? 3 : 2);
    expect_all_reduce_works(part);
    expect_alltoall_works(part);
    expect_all_reduce_works(comm);
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST(CommSplit, OrdersByKeyThenByRank) {
  run_ranks_as_threads(6, [](int rank, ncclComm_t comm) {
    ncclComm_t reversed = nullptr;
    WEFT_OK(ncclCommSplit(comm, 5, -rank, &reversed, nullptr));
    ASSERT_NE(reversed, nullptr);
    EXPECT_EQ(rank_of(reversed), 5 - rank);
    expect_all_reduce_works(reversed);
    ncclComm_t same_key = nullptr;
    WEFT_OK(ncclCommSplit(comm, 0, 42, &same_key, nullptr));
    ASSERT_NE(same_key, nullptr);
    EXPECT_EQ(rank_of(same_key), rank);
    WEFT_OK(ncclCommDestroy(reversed));
    WEFT_OK(ncclCommDestroy(same_key));
  });
}

TEST(CommSplit, NoColorGivesNull) {
  run_ranks_as_threads(4, [](int rank, ncclComm_t comm) {
    ncclComm_t part = comm;  // must be overwritten
    WEFT_OK(ncclCommSplit(comm, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, nullptr));
    if (rank == 2) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    EXPECT_EQ(size_of(part), 3);
    expect_all_reduce_works(part);
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST(CommSplit, OutlivesItsParentAndSplitsAgain) {
  const ncclUniqueId id = new_unique_id();
  run_threads(8, [&](int rank) {
    ncclComm_t world = nullptr;
    WEFT_OK(ncclCommInitRank(&world, 8, id, rank));
    ncclComm_t half = nullptr;
    WEFT_OK(ncclCommSplit(world, rank / 4, rank, &half, nullptr));
    WEFT_OK(ncclCommDestroy(world));
    ncclComm_t quarter = nullptr;
    WEFT_OK(ncclCommSplit(half, rank % 2, rank, &quarter, nullptr));
    EXPECT_EQ(size_of(quarter), 2);
    expect_all_reduce_works(half);
    expect_all_reduce_works(quarter);
    WEFT_OK(ncclCommDestroy(half));
    WEFT_OK(ncclCommDestroy(quarter));
  });
}

// A config replaces the parent's as a whole. Without one a child is as its parent.
TEST(CommSplit, UndefinedFieldsOfAConfigAreDefaults) {
  ncclConfig_t quiet = NCCL_CONFIG_INITIALIZER;
  quiet.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &quiet);
  ASSERT_EQ(settle(comm), ncclSuccess);
  ncclComm_t inherits = nullptr;
  ncclComm_t has_defaults = nullptr;
  ncclCommSplit(comm, 0, 0, &inherits, nullptr);
  ASSERT_EQ(settle(comm), ncclSuccess);
  ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;
  ncclCommSplit(comm, 0, 0, &has_defaults, &undefined);
  ASSERT_EQ(settle(comm), ncclSuccess);
  int x = 1;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, inherits, nullptr), ncclInProgress);
  EXPECT_EQ(settle(inherits), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, has_defaults, nullptr), ncclSuccess);
  for (ncclComm_t each : {inherits, has_defaults, comm}) WEFT_OK(ncclCommDestroy(each));
}

TEST(CommSplit, SharingResourcesIsAllowed) {
  run_ranks_as_threads(4, [](int rank, ncclComm_t comm) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(comm, rank % 2, rank, &part, &config));
    expect_all_reduce_works(part);
    expect_all_reduce_works(comm);
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST(CommSplit, InsideAGroupLetsOneThreadSplitAllRanks) {
  CommSet set(4);
  ncclComm_t parts[4] = {};
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 4; ++r) WEFT_OK(ncclCommSplit(set[r], r % 2, r, &parts[r], nullptr));
  WEFT_OK(ncclGroupEnd());
  for (ncclComm_t part : parts) ASSERT_NE(part, nullptr);
  run_threads(4, [&](int r) { expect_all_reduce_works(parts[r]); });
  for (ncclComm_t part : parts) WEFT_OK(ncclCommDestroy(part));
}

TEST(CommShrink, LeavesOutTheExcludedAndClosesTheGaps) {
  run_ranks_as_threads(5, [](int rank, ncclComm_t comm) {
    int excluded[] = {1, 3};
    if (rank == 1 || rank == 3) return;  // these ranks do not call
    ncclComm_t rest = nullptr;
    WEFT_OK(ncclCommShrink(comm, excluded, 2, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    ASSERT_NE(rest, nullptr);
    EXPECT_EQ(size_of(rest), 3);
    EXPECT_EQ(rank_of(rest), rank / 2);
    expect_all_reduce_works(rest);
    WEFT_OK(ncclCommDestroy(rest));
  });
}

TEST(CommShrink, WithAbortFreesThoseBlockedInTheParent) {
  CommSet set(3);
  // Ranks 0 and 1 wait in a collective that rank 2 never joins.
  const auto blocked = [&](int rank) {
    ncclComm_t comm = set[rank];
    return PendingCall([comm] {
      std::vector<float> data(1000, 1.0f);
      return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm,
                           nullptr);
    });
  };
  PendingCall first = blocked(0);
  PendingCall second = blocked(1);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(200)), ncclNumResults) << "should be waiting";
  run_threads(2, [&](int rank) {
    int excluded[] = {2};
    ncclComm_t rest = nullptr;
    WEFT_OK(ncclCommShrink(set[rank], excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    ASSERT_NE(rest, nullptr);
    expect_all_reduce_works(rest);
    WEFT_OK(ncclCommDestroy(rest));
  });
  EXPECT_NE(first.wait_for(std::chrono::seconds(20)), ncclSuccess);
  EXPECT_NE(second.wait_for(std::chrono::seconds(20)), ncclSuccess);
}

}  // namespace
}  // namespace weft::test
