// Communicators with blocking=0. Calls may return ncclInProgress; the state says when they are
// done.
#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

bool started(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

ncclComm_t make_nonblocking(int nranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_TRUE(started(ncclCommInitRankConfig(&comm, nranks, id, rank, &config)));
  EXPECT_NE(comm, nullptr);
  EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  return comm;
}

void finish(ncclComm_t comm) {
  EXPECT_TRUE(started(ncclCommFinalize(comm)));
  EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(NonBlocking, InitThenAllReduceThenFinalize) {
  const ncclUniqueId id = new_unique_id();
  run_threads(4, [&](int rank) {
    ncclComm_t comm = make_nonblocking(4, id, rank);
    EXPECT_EQ(rank_of(comm), rank);
    for (int round = 0; round < 20; ++round) {
      std::vector<int> data(1000, rank + round);
      EXPECT_TRUE(started(
          ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, nullptr)));
      EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
      EXPECT_EQ(data, std::vector<int>(1000, 6 + 4 * round));
    }
    finish(comm);
  });
}

// With blocking=0 the first rank must not wait inside the call for the others.
TEST(NonBlocking, OneThreadCanInitAllRanksWithoutAGroup) {
  constexpr int kRanks = 3;
  const ncclUniqueId id = new_unique_id();
  const auto comms = std::make_shared<std::vector<ncclComm_t>>(kRanks, nullptr);
  PendingCall call([id, comms] {
    for (int r = 0; r < kRanks; ++r) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const ncclResult_t result =
          ncclCommInitRankConfig(&(*comms)[static_cast<size_t>(r)], kRanks, id, r, &config);
      if (!started(result)) return result;
    }
    return ncclSuccess;
  });
  ASSERT_EQ(call.wait_for(std::chrono::seconds(20)), ncclSuccess);
  for (ncclComm_t comm : *comms) EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  for (ncclComm_t comm : *comms) WEFT_OK(ncclCommAbort(comm));
}

TEST(NonBlocking, GroupsAnswerSuccessOrInProgress) {
  const ncclUniqueId id = new_unique_id();
  run_threads(2, [&](int rank) {
    ncclComm_t comm = make_nonblocking(2, id, rank);
    int sent = rank + 10;
    int received = -1;
    WEFT_OK(ncclGroupStart());
    EXPECT_TRUE(started(ncclSend(&sent, 1, ncclInt32, 1 - rank, comm, nullptr)));
    EXPECT_TRUE(started(ncclRecv(&received, 1, ncclInt32, 1 - rank, comm, nullptr)));
    EXPECT_TRUE(started(ncclGroupEnd()));
    EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(received, 11 - rank);
    finish(comm);
  });
}

TEST(NonBlocking, SplitGivesACommunicatorThatSettles) {
  const ncclUniqueId id = new_unique_id();
  run_threads(4, [&](int rank) {
    ncclComm_t comm = make_nonblocking(4, id, rank);
    ncclComm_t half = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    EXPECT_TRUE(started(ncclCommSplit(comm, rank / 2, rank, &half, &config)));
    EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_NE(half, nullptr);
    if (half != nullptr) {
      EXPECT_EQ(settle(half), ncclSuccess);
      EXPECT_EQ(size_of(half), 2);
      expect_all_reduce_works(half);
      WEFT_OK(ncclCommDestroy(half));
    }
    finish(comm);
  });
}

TEST(NonBlocking, AbortEndsAnInitThatOthersNeverJoin) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_TRUE(started(ncclCommInitRankConfig(&comm, 2, new_unique_id(), 0, &config)));
  PendingCall abort([comm] { return ncclCommAbort(comm); });
  EXPECT_EQ(abort.wait_for(std::chrono::seconds(10)), ncclSuccess);
}

}  // namespace
}  // namespace weft::test
