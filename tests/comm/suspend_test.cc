// ncclCommSuspend, ncclCommResume, ncclCommMemStats.
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/memory_statistic.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

size_t resident_bytes() {
  size_t pages = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(getpagesize());
}

TEST(Suspend, CallsWorkAgainAfterResume) {
  const ncclUniqueId id = new_unique_id();
  run_threads(4, [&](int rank) {
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRank(&comm, 4, id, rank));
    float scale = 2;
    ncclRedOp_t op{};
    WEFT_OK(ncclRedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarHostImmediate, comm));
    for (int round = 0; round < 3; round++) {
      expect_all_reduce_works(comm);
      WEFT_OK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
      EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 1u);
      float x = 1;
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidUsage);
      EXPECT_EQ(rank_of(comm), rank);
      EXPECT_EQ(size_of(comm), 4);
      WEFT_OK(ncclCommResume(comm));
      EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 0u);
      expect_alltoall_works(comm);
      WEFT_OK(ncclAllReduce(&x, &x, 1, ncclFloat32, op, comm, nullptr));
      EXPECT_EQ(x, 8);
    }
    WEFT_OK(ncclCommDestroy(comm));
  });
}

TEST(Suspend, GivesTheMemoryBack) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 64;
  CommSet set(kRanks);
  // Small messages go through FIFOs, in the end through all their pages.
  const auto use = [&] {
    run_threads(kRanks, [&](int rank) {
      std::vector<int> in(kRanks * kCount, rank);
      std::vector<int> out(kRanks * kCount, -1);
      for (int i = 0; i < 8000; i++)
        WEFT_OK(ncclAlltoAll(in.data(), out.data(), kCount, ncclInt32, set[rank], nullptr));
      for (int r = 0; r < kRanks; r++) EXPECT_EQ(out[static_cast<size_t>(r) * kCount], r);
    });
  };
  use();
  const uint64_t held = statistic(set[0], ncclStatGpuMemSuspend);
  EXPECT_GT(held, 0u);
  EXPECT_EQ(statistic(set[0], ncclStatGpuMemTotal), held);
  EXPECT_EQ(statistic(set[0], ncclStatGpuMemPersist), 0u);
  const size_t before = resident_bytes();
  run_threads(kRanks, [&](int rank) { WEFT_OK(ncclCommSuspend(set[rank], NCCL_SUSPEND_MEM)); });
  const size_t suspended = resident_bytes();
  EXPECT_LT(suspended + (size_t{1} << 20), before) << "FIFOs that were used are still in memory";
  run_threads(kRanks, [&](int rank) { WEFT_OK(ncclCommResume(set[rank])); });
  use();
}

TEST(Suspend, OneThreadSuspendsAndResumesSeveralRanksInAGroup) {
  CommSet set(3);
  for (int round = 0; round < 2; round++) {
    WEFT_OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) WEFT_OK(ncclCommSuspend(set[r], NCCL_SUSPEND_MEM));
    WEFT_OK(ncclGroupEnd());
    WEFT_OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) WEFT_OK(ncclCommResume(set[r]));
    WEFT_OK(ncclGroupEnd());
  }
  run_threads(3, [&](int rank) { expect_all_reduce_works(set[rank]); });
}

TEST(Suspend, NonBlockingCommunicatorsTellWhenItIsDone) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config);
  ASSERT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 1u);
  EXPECT_EQ(ncclCommResume(comm), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 0u);
  WEFT_OK(ncclCommDestroy(comm));
}

ncclComm_t make_nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config);
  EXPECT_EQ(settle(comm), ncclSuccess);
  return comm;
}

TEST(Suspend, IsNotResumedBeforeItIsDone) {
  ncclComm_t comm = make_nonblocking();
  for (int round = 0; round < 30; round++) {
    EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInProgress);
    ncclResult_t resumed = ncclInvalidUsage;
    while (resumed == ncclInvalidUsage) resumed = ncclCommResume(comm);
    EXPECT_EQ(resumed, ncclInProgress);
    ASSERT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
    int data = 1;
    ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, nullptr);
    ASSERT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  }
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(Suspend, CanBeAbortedAtAnyMoment) {
  for (int round = 0; round < 30; round++) {
    ncclComm_t comm = make_nonblocking();
    EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInProgress);
    usleep(static_cast<useconds_t>(round * 50));
    PendingCall abort([comm] { return ncclCommAbort(comm); });
    ASSERT_EQ(abort.wait_for(std::chrono::seconds(20)), ncclSuccess);
  }
}

TEST(Suspend, MemoryCanBeDeregisteredMeanwhile) {
  CommSet set(1);
  std::vector<float> first(1000);
  std::vector<float> second(1000);
  void* handles[2] = {};
  WEFT_OK(ncclCommRegister(set[0], first.data(), 4000, &handles[0]));
  WEFT_OK(ncclCommRegister(set[0], second.data(), 4000, &handles[1]));
  WEFT_OK(ncclCommSuspend(set[0], NCCL_SUSPEND_MEM));
  WEFT_OK(ncclCommDeregister(set[0], handles[0]));
  EXPECT_EQ(ncclCommDeregister(set[0], handles[0]), ncclInvalidArgument);
  WEFT_OK(ncclCommResume(set[0]));
  EXPECT_EQ(ncclCommDeregister(set[0], handles[0]), ncclInvalidArgument);
  WEFT_OK(ncclCommDeregister(set[0], handles[1]));
}

TEST(Suspend, ASuspendedCommunicatorCanBeDestroyedOrAborted) {
  CommSet set(2);
  run_threads(2, [&](int rank) { WEFT_OK(ncclCommSuspend(set[rank], NCCL_SUSPEND_MEM)); });
  WEFT_OK(ncclCommDestroy(set.take(0)));
  WEFT_OK(ncclCommAbort(set.take(1)));
}

TEST(Suspend, WrongUsesAreRefused) {
  CommSet set(1);
  uint64_t value = 0;
  EXPECT_EQ(ncclCommSuspend(nullptr, NCCL_SUSPEND_MEM), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(set[0], 0x10), ncclInvalidArgument);
  EXPECT_EQ(ncclCommResume(set[0]), ncclInvalidUsage);
  EXPECT_EQ(ncclCommMemStats(set[0], ncclStatGpuMemTotal, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommMemStats(set[0], static_cast<ncclCommMemStat_t>(9), &value),
            ncclInvalidArgument);
  WEFT_OK(ncclCommSuspend(set[0], NCCL_SUSPEND_MEM));
  EXPECT_EQ(ncclCommSuspend(set[0], NCCL_SUSPEND_MEM), ncclInvalidUsage);
  WEFT_OK(ncclCommResume(set[0]));
}

TEST(Suspend, AllRanksMustMakeTheSameCall) {
  CommSet set(2);
  run_threads(2, [&](int rank) {
    ncclComm_t part = nullptr;
    if (rank == 0)
      EXPECT_EQ(ncclCommSuspend(set[0], NCCL_SUSPEND_MEM), ncclInvalidUsage);
    else
      EXPECT_EQ(ncclCommSplit(set[1], 0, 0, &part, nullptr), ncclInvalidUsage);
    expect_all_reduce_works(set[rank]);
  });
}

}  // namespace
}  // namespace weft::test
