// Communicators of processes: scale, split, several ids, and the death of a process.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

#include "src/comm/unique_id.h"
#include "tests/comm/checks.h"
#include "tests/support/patterns.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

WEFT_SCENARIO(reduce_exchange_split) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_EQ(rank_of(comm), context.rank);
    expect_all_reduce_works(comm, 1);
    expect_all_reduce_works(comm, 50000);
    expect_alltoall_works(comm);
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(comm, context.rank % 2, -context.rank, &part, nullptr));
    EXPECT_EQ(size_of(part), (context.nranks + 1 - context.rank % 2) / 2);
    expect_all_reduce_works(part);
    expect_alltoall_works(part);
    WEFT_OK(ncclCommDestroy(part));
    expect_all_reduce_works(comm);
  });
}

TEST(Processes, SixteenReduceExchangeAndSplit) {
  run_ranks_as_processes("reduce_exchange_split", 16);
}

TEST(Processes, FiveOnSeparateHostsReduceExchangeAndSplit) {
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("reduce_exchange_split", 5, options);
}

WEFT_SCENARIO(several_ids) {
  ncclComm_t comm = nullptr;
  std::vector<ncclUniqueId> ids = context.ids;
  WEFT_OK(ncclCommInitRankScalable(&comm, context.nranks, context.rank,
                                   static_cast<int>(ids.size()), ids.data(), nullptr));
  expect_all_reduce_works(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(Processes, MeetThroughSeveralIds) {
  ProcessOptions options;
  options.ids = 3;
  run_ranks_as_processes("several_ids", 8, options);
}

WEFT_SCENARIO(freed_memory) {
  with_communicator(context, [&](ncclComm_t comm) {
    for (int round = 0; round < 30; ++round) {
      const size_t count = 50000;
      void* memory = nullptr;
      WEFT_OK(ncclMemAlloc(&memory, count * sizeof(int)));
      int* data = static_cast<int*>(memory);
      for (size_t i = 0; i < count; ++i) data[i] = context.rank + round;
      WEFT_OK(ncclAllReduce(data, data, count, ncclInt32, ncclMax, comm, nullptr));
      for (size_t i = 0; i < count; i += 997) EXPECT_EQ(data[i], context.nranks - 1 + round);
      WEFT_OK(ncclMemFree(memory));
    }
  });
}

TEST(Processes, SeeReplacedMemAllocBuffersOfTheirPeers) {
  run_ranks_as_processes("freed_memory", 3);
}

// NCCL_COMM_ID: ranks meet at an address from the environment instead of a shared id.
WEFT_SCENARIO(id_from_environment) {
  with_communicator_by_address(context, [](ncclComm_t comm) { expect_all_reduce_works(comm); });
}

TEST(Processes, MeetAtTheAddressInNcclCommId) {
  const std::string port = std::to_string(free_port());
  ProcessOptions options;
  options.environment = [&](int) -> std::map<std::string, std::string> {
    return {{"NCCL_COMM_ID", "127.0.0.1:" + port}, {"NCCL_SOCKET_IFNAME", "lo"}};
  };
  run_ranks_as_processes("id_from_environment", 3, options);
}

// The rendezvous lives in rank 0's process and ends with it. Ranks do not report a death if rank 0
// has left properly.
WEFT_SCENARIO(rank_zero_ends_first) {
  with_communicator_by_address(context, [&](ncclComm_t comm) {
    expect_all_reduce_works(comm);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    const int other = 3 - context.rank;
    for (int more = 1; context.rank != 0 && more != 0;) {
      more = context.rank == 1 && std::chrono::steady_clock::now() < end ? 1 : 0;
      int theirs = 0;
      WEFT_OK(ncclGroupStart());
      WEFT_OK(ncclSend(&more, 1, ncclInt32, other, comm, nullptr));
      WEFT_OK(ncclRecv(&theirs, 1, ncclInt32, other, comm, nullptr));
      const ncclResult_t result = ncclGroupEnd();
      EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(comm);
      if (result != ncclSuccess) break;
      if (context.rank == 2) more = theirs;
    }
  });
}

TEST(Processes, GoOnWhenTheOneWithTheRendezvousLeavesAndEnds) {
  ProcessOptions options;
  const std::string port = std::to_string(free_port());
  options.environment = [&](int) -> std::map<std::string, std::string> {
    return {{"NCCL_COMM_ID", "127.0.0.1:" + port}, {"NCCL_SOCKET_IFNAME", "lo"}};
  };
  run_ranks_as_processes("rank_zero_ends_first", 3, options);
}

constexpr int kVictim = 1;

// Rank 1 dies without warning. The others must learn it within 10 s, and the text must name rank 1.
// The argument "shrink" makes them go on without it.
WEFT_SCENARIO(one_dies) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank));
  expect_all_reduce_works(comm);
  die_when_all_are_here(comm, kVictim);
  const auto before = std::chrono::steady_clock::now();
  std::vector<float> data(100000, 1.0f);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_TRUE(result == ncclRemoteError || result == ncclSystemError) << result;
  EXPECT_LT(std::chrono::steady_clock::now() - before, patience(std::chrono::seconds(10)));
  const std::string text = ncclGetLastError(comm);
  EXPECT_TRUE(says(text, "rank 1([^0-9]|$)")) << "says: " << text;
  ncclResult_t state = ncclSuccess;
  WEFT_OK(ncclCommGetAsyncError(comm, &state));
  EXPECT_NE(state, ncclSuccess);
  if (context.argument == "shrink") {
    int dead[] = {kVictim};
    ncclComm_t rest = nullptr;
    WEFT_OK(ncclCommShrink(comm, dead, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    if (rest != nullptr) {
      EXPECT_EQ(size_of(rest), context.nranks - 1);
      expect_all_reduce_works(rest);
      WEFT_OK(ncclCommDestroy(rest));
    } else {
      ADD_FAILURE() << "no communicator of the survivors";
    }
  }
  WEFT_OK(ncclCommAbort(comm));
}

// The state of the parent first tells of the dead rank, then of the shrink.
WEFT_SCENARIO(one_dies_nonblocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, context.nranks, context.ids.at(0), context.rank, &config);
  ASSERT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  if (context.rank == kVictim) {
    usleep(500000);
    kill(getpid(), SIGKILL);
  }
  float value = 1;
  ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_EQ(settle(comm), ncclRemoteError);
  int dead[] = {kVictim};
  ncclComm_t rest = nullptr;
  EXPECT_EQ(ncclCommShrink(comm, dead, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(size_of(rest), context.nranks - 1);
  WEFT_OK(ncclCommDestroy(rest));
  WEFT_OK(ncclCommAbort(comm));
}

void expect_survivors_learn_it(int n, const ProcessOptions& options,
                               const char* scenario = "one_dies") {
  const auto results = run_processes(scenario, n, options);
  for (int r = 0; r < n; ++r) {
    const ProcessResult& result = results[static_cast<size_t>(r)];
    if (r == kVictim) {
      EXPECT_EQ(result.signal, SIGKILL);
      continue;
    }
    EXPECT_FALSE(result.hung) << "rank " << r << " hung:\n" << result.output;
    EXPECT_EQ(result.exit_code, 0) << "rank " << r << ":\n" << result.output;
  }
}

TEST(KilledProcess, IsReportedByTheOthersByName) {
  for (int n : {2, 4}) expect_survivors_learn_it(n, {});
}

TEST(KilledProcess, OnAnotherHostIsReportedByTheOthersByName) {
  ProcessOptions options;
  options.environment = separate_hosts;
  expect_survivors_learn_it(4, options);
}

TEST(KilledProcess, CanBeLeftOutByShrinking) {
  ProcessOptions options;
  options.argument = "shrink";
  expect_survivors_learn_it(4, options);
}

TEST(KilledProcess, CanBeLeftOutOfANonBlockingCommunicator) {
  expect_survivors_learn_it(3, {}, "one_dies_nonblocking");
}

WEFT_SCENARIO(different_counts) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank));
  std::vector<int> data(5000, 1);
  const size_t count = context.rank == 0 ? 4000 : 5000;
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, nullptr);
  std::printf("result=%d %s\n", result, ncclGetLastError(comm));
  WEFT_OK(ncclCommAbort(comm));  // ends the other rank's wait, if it still waits
}

TEST(Processes, WithDifferentCountsGetAnErrorSomewhereAndNobodyHangs) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(60);
  for (bool separate : {false, true}) {
    if (separate) options.environment = separate_hosts;
    const auto results = run_processes("different_counts", 2, options);
    bool failed = false;
    for (const ProcessResult& r : results) {
      EXPECT_FALSE(r.hung) << r.output;
      failed = failed || r.output.find("result=0") == std::string::npos;
    }
    EXPECT_TRUE(failed) << "nobody noticed\n" << results[0].output << results[1].output;
  }
}

WEFT_SCENARIO(wrong_secret) {
  // Rank 1 knows the address but not the secret.
  ncclUniqueId id = context.ids.at(0);
  if (context.rank == 1) id.internal[offsetof(UniqueId, secret)] ^= 0x55;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t started = ncclCommInitRankConfig(&comm, 2, id, context.rank, &config);
  ncclResult_t state = started;
  if (started == ncclSuccess || started == ncclInProgress)
    state = settle(comm, std::chrono::seconds(10));
  EXPECT_NE(state, ncclSuccess) << "a rank with the wrong secret was let in";
  if (comm != nullptr) ncclCommAbort(comm);
}

TEST(Processes, WithoutTheSecretAreNotLetIn) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(40);
  options.environment = [](int) -> std::map<std::string, std::string> {
    return {{"WEFT_INIT_TIMEOUT", "1"}};
  };
  run_ranks_as_processes("wrong_secret", 2, options);
}

}  // namespace
}  // namespace weft::test
