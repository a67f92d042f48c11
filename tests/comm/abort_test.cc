// Ways to end a communicator: finalize, destroy, abort, revoke. Also while a collective waits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An all_reduce that waits for peers. The call owns its buffers.
PendingCall pending_all_reduce(ncclComm_t comm, size_t count = 1000) {
  return PendingCall([comm, count] {
    std::vector<float> data(count, 1.0f);
    return ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, nullptr);
  });
}

void expect_blocked(PendingCall& call) {
  ASSERT_EQ(call.wait_for(milliseconds(100)), ncclNumResults) << "should be waiting for its peers";
}

void expect_ends_with_error(PendingCall& call, milliseconds limit) {
  const ncclResult_t result = call.wait_for(limit);
  EXPECT_NE(result, ncclNumResults) << "still blocked";
  EXPECT_NE(result, ncclSuccess);
}

bool is_stale(ncclResult_t r) { return r == ncclInvalidArgument || r == ncclInvalidUsage; }

TEST(Finalize, ThenDestroySucceeds) {
  const ncclUniqueId id = new_unique_id();
  run_threads(3, [&](int rank) {
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRank(&comm, 3, id, rank));
    expect_all_reduce_works(comm);
    WEFT_OK(ncclCommFinalize(comm));
    float x = 1;
    EXPECT_TRUE(is_stale(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, nullptr)));
    WEFT_OK(ncclCommDestroy(comm));
  });
}

TEST(Finalize, OfNullIsNothingAndTwiceIsAnError) {
  WEFT_OK(ncclCommFinalize(nullptr));
  CommSet set(1);
  WEFT_OK(ncclCommFinalize(set[0]));
  EXPECT_EQ(ncclCommFinalize(set[0]), ncclInvalidArgument);
}

TEST(Destroy, NeedsNoOrderAmongTheRanks) {
  CommSet set(4);
  run_threads(4, [&](int r) { expect_all_reduce_works(set[r]); });
  for (int r : {2, 0, 3, 1}) {  // one after the other, by one thread
    ncclComm_t comm = set.take(r);
    PendingCall destroy([comm] { return ncclCommDestroy(comm); });
    EXPECT_EQ(destroy.wait_for(seconds(20)), ncclSuccess) << "rank " << r;
  }
}

TEST(Abort, OfAnIdleCommunicatorSucceeds) {
  run_threads(1, [](int) {
    CommSet set(2);
    WEFT_OK(ncclCommAbort(set.take(1)));
    WEFT_OK(ncclCommAbort(set.take(0)));
  });
}

TEST(Abort, FromAnotherThreadEndsABlockedCollective) {
  CommSet set(2);
  ncclComm_t comm = set.take(0);
  PendingCall blocked = pending_all_reduce(comm);
  expect_blocked(blocked);
  PendingCall abort([comm] { return ncclCommAbort(comm); });
  EXPECT_EQ(abort.wait_for(seconds(20)), ncclSuccess);
  expect_ends_with_error(blocked, seconds(20));
}

TEST(Abort, EndsALargeTransferHalfway) {
  CommSet set(3);
  std::vector<PendingCall> blocked;
  for (int r = 0; r < 2; ++r) blocked.push_back(pending_all_reduce(set[r], size_t{4} << 20));
  expect_blocked(blocked[0]);
  for (int r = 0; r < 3; ++r) {
    ncclComm_t comm = set.take(r);
    PendingCall abort([comm] { return ncclCommAbort(comm); });
    EXPECT_EQ(abort.wait_for(seconds(20)), ncclSuccess);
  }
  for (PendingCall& call : blocked) expect_ends_with_error(call, seconds(20));
}

TEST(Abort, OfOneRankEndsTheWaitOfTheOthers) {
  CommSet set(3);
  PendingCall first = pending_all_reduce(set[0]);
  PendingCall second = pending_all_reduce(set[1]);
  expect_blocked(first);
  WEFT_OK(ncclCommAbort(set.take(2)));
  expect_ends_with_error(first, seconds(20));
  expect_ends_with_error(second, seconds(20));
}

// Rank 0 sends all it has to and aborts. The others have long to go until they receive.
TEST(Abort, AfterTheLastCallDoesNotEndTheWorkOfSlowerRanks) {
  CommSet set(3);
  int sent = 42;
  WEFT_OK(ncclGroupStart());
  WEFT_OK(ncclSend(&sent, 1, ncclInt32, 1, set[0], nullptr));
  WEFT_OK(ncclSend(&sent, 1, ncclInt32, 2, set[0], nullptr));
  WEFT_OK(ncclGroupEnd());
  WEFT_OK(ncclCommAbort(set.take(0)));
  usleep(1500000);  // longer than any patience with a rank that died
  for (int r : {1, 2}) {
    ncclResult_t state = ncclInternalError;
    WEFT_OK(ncclCommGetAsyncError(set[r], &state));
    EXPECT_EQ(state, ncclSuccess);
  }
  run_threads(2, [&](int r) {
    int received = 0;
    WEFT_OK(ncclRecv(&received, 1, ncclInt32, 0, set[r + 1], nullptr));
    EXPECT_EQ(received, 42);
    int value = r;
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclSend(&value, 1, ncclInt32, 2 - r, set[r + 1], nullptr));
    WEFT_OK(ncclRecv(&received, 1, ncclInt32, 2 - r, set[r + 1], nullptr));
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(received, 1 - r);
  });
}

TEST(Abort, IsNamedByTheErrorOfARankThatNeedsTheOneThatAborted) {
  CommSet set(3);
  WEFT_OK(ncclCommAbort(set.take(2)));
  PendingCall first = pending_all_reduce(set[0]);
  PendingCall second = pending_all_reduce(set[1]);
  EXPECT_EQ(first.wait_for(seconds(20)), ncclRemoteError);
  EXPECT_EQ(second.wait_for(seconds(20)), ncclRemoteError);
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find("rank 2 aborted"), std::string::npos) << text;
  for (int r : {0, 1}) {
    ncclResult_t state = ncclSuccess;
    WEFT_OK(ncclCommGetAsyncError(set[r], &state));
    EXPECT_EQ(state, ncclRemoteError);
  }
}

TEST(Abort, EndsABlockedReceive) {
  CommSet set(2);
  ncclComm_t comm = set.take(1);
  PendingCall blocked([comm] {
    int x = 0;
    return ncclRecv(&x, 1, ncclInt32, 0, comm, nullptr);
  });
  expect_blocked(blocked);
  PendingCall abort([comm] { return ncclCommAbort(comm); });
  EXPECT_EQ(abort.wait_for(seconds(20)), ncclSuccess);
  expect_ends_with_error(blocked, seconds(20));
}

TEST(Revoke, StopsAWaitingCollectiveAndRefusesNewOnes) {
  CommSet set(2);
  PendingCall blocked = pending_all_reduce(set[0]);
  expect_blocked(blocked);
  WEFT_OK(ncclCommRevoke(set[0], NCCL_REVOKE_DEFAULT));
  expect_ends_with_error(blocked, seconds(20));
  EXPECT_EQ(settle(set[0]), ncclSuccess);
  float x = 1;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, set[0], nullptr), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(set[0]), ncclInvalidUsage);
  WEFT_OK(ncclCommDestroy(set.take(0)));
}

TEST(Revoke, LeavesSplitPossible) {
  CommSet set(2);
  run_threads(2, [&](int rank) {
    WEFT_OK(ncclCommRevoke(set[rank], NCCL_REVOKE_DEFAULT));
    EXPECT_EQ(settle(set[rank]), ncclSuccess);
    ncclComm_t again = nullptr;
    WEFT_OK(ncclCommSplit(set[rank], 0, rank, &again, nullptr));
    ASSERT_NE(again, nullptr);
    expect_all_reduce_works(again);
    WEFT_OK(ncclCommDestroy(again));
  });
}

TEST(Revoke, RefusesUnknownFlags) {
  CommSet set(1);
  EXPECT_EQ(ncclCommRevoke(set[0], 1), ncclInvalidArgument);
}

}  // namespace
}  // namespace weft::test
