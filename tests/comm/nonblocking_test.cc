// Communicators with blocking=0. Calls may return ncclInProgress; the state says when they are
// done.
#include <gtest/gtest.h>

#include <filesystem>
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

// The parent's state tells when a child is done. Until then the child is NULL.
TEST(NonBlocking, SplitReportsItsProgressOnTheParent) {
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[2] = {};
  run_threads(2, [&](int rank) { comms[rank] = make_nonblocking(2, id, rank); });
  ncclComm_t halves[2] = {};
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &halves[0], nullptr), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  usleep(50000);
  WEFT_OK(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(halves[0], nullptr);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 0, &halves[1], nullptr), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  for (ncclComm_t half : halves) {
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(settle(half), ncclSuccess);
    EXPECT_EQ(size_of(half), 2);
    WEFT_OK(ncclCommAbort(half));
  }
  for (ncclComm_t comm : comms) WEFT_OK(ncclCommAbort(comm));
}

TEST(NonBlocking, AbortOfTheParentEndsASplitThatOthersNeverJoin) {
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[2] = {};
  run_threads(2, [&](int rank) { comms[rank] = make_nonblocking(2, id, rank); });
  ncclComm_t half = nullptr;
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &half, nullptr), ncclInProgress);
  for (ncclComm_t comm : comms) {
    PendingCall abort([comm] { return ncclCommAbort(comm); });
    EXPECT_EQ(abort.wait_for(std::chrono::seconds(10)), ncclSuccess);
  }
  EXPECT_EQ(half, nullptr);
}

size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(NonBlocking, AbortOfAnInitFreesItsThreadAndSockets) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto init_and_abort = [&] {
    ncclComm_t comm = nullptr;
    ASSERT_TRUE(started(ncclCommInitRankConfig(&comm, 2, new_unique_id(), 0, &config)));
    usleep(50000);  // until it waits for the other rank
    WEFT_OK(ncclCommAbort(comm));
  };
  init_and_abort();  // the library's own threads stay
  const size_t threads = entries("/proc/self/task");
  const size_t descriptors = entries("/proc/self/fd");
  for (int i = 0; i < 5; i++) init_and_abort();
  for (int tries = 0; tries < 100 && entries("/proc/self/task") > threads; tries++) usleep(10000);
  EXPECT_LE(entries("/proc/self/task"), threads);  // one may still have been ending before
  EXPECT_LE(entries("/proc/self/fd"), descriptors);
}

TEST(NonBlocking, FinalizeReturnsAtOnceAndFlushes) {
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[2] = {};
  run_threads(2, [&](int rank) { comms[rank] = make_nonblocking(2, id, rank); });
  int data[2] = {1, 2};
  const auto call = [&](int rank) {
    return ncclAllReduce(&data[rank], &data[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr);
  };
  EXPECT_EQ(call(0), ncclInProgress);
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  usleep(50000);
  WEFT_OK(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress) << "the other rank has not called yet";
  EXPECT_EQ(call(1), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ncclSuccess);
  EXPECT_EQ(data[0], 3);
  WEFT_OK(ncclCommDestroy(comms[0]));
  finish(comms[1]);
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
