// Plans with CPU nodes, run by ranks in host mode: results are right, and every way to end works.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "include/weft.h"
#include "tests/comm/checks.h"
#include "tests/support/conformance.h"
#include "tests/support/environment.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr const char* kPlans[] = {"cpu_reduce", "cpu_pair"};

std::string forcing(const std::string& plan) {
  return "all_reduce=" + plan + ",reduce=" + plan + ",reduce_scatter=" + plan;
}

std::vector<Case> reductions(int n, int samples, uint64_t seed) {
  std::vector<Case> cases;
  for (const auto& list : {brief_cases(n), random_cases(n, samples, seed)})
    for (const Case& c : list)
      if (c.operation == Operation::kAllReduce || c.operation == Operation::kReduce ||
          c.operation == Operation::kReduceScatter)
        cases.push_back(c);
  return cases;
}

WEFT_SCENARIO(cpu_nodes_reduce) {
  const uint64_t seed = std::stoull(context.argument);
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(reductions(context.nranks, test_samples(30), seed), context.rank, context.nranks,
              comm, &watchdog);
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(comm, context.rank % 2, -context.rank, &part, nullptr));
    expect_all_reduce_works(part, 5000);
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST(CpuNodes, OfProcessesGiveTheReferenceResults) {
  for (const int n : {3, 5}) {
    const ScopedEnvironment environment{{"WEFT_PLAN", forcing(kPlans[n / 4])}};
    ProcessOptions options;
    options.argument = std::to_string(mix(test_seed(), static_cast<uint64_t>(n)));
    run_ranks_as_processes("cpu_nodes_reduce", n, options);
  }
}

// The cores that this process's threads with that name may use.
std::vector<int> cores_of_threads(const std::string& name) {
  std::vector<int> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string said;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, said);
    cpu_set_t set;
    if (said == name &&
        sched_getaffinity(std::stoi(task.path().filename().string()), sizeof set, &set) == 0)
      cores.push_back(CPU_COUNT(&set));
  }
  return cores;
}

TEST(CpuNodes, AreNotBoundToTheCoreOfTheRankThatHasThem) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_reduce")}};
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "there is one core";
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; CPU_COUNT(&one) == 0; core++)
      if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    expect_all_reduce_works(comm);
    if (rank == 0) {
      EXPECT_EQ(cores_of_threads("weft-cpu-node"), std::vector<int>(1, CPU_COUNT(&all)));
    }
    expect_all_reduce_works(comm);
  });
}

// There are fewer ranks than the machine has GPUs, so that nothing is synthesized.
TEST(CpuNodes, AreChosenForAnEmulatedBoxAndGiveTheReferenceResults) {
  constexpr int kRanks = 5;
  const ScopedEnvironment environment{{"WEFT_TOPO", "rtx4090-8x"}};
  const std::vector<Case> cases = reductions(kRanks, test_samples(30), mix(test_seed(), 31));
  Watchdog watchdog(kRanks);
  run_ranks_as_threads(kRanks, [&](int rank, ncclComm_t comm) {
    const char* plan = nullptr;
    WEFT_OK(weftPlanOf(comm, "all_reduce", 16 << 20, &plan));
    EXPECT_EQ(std::string(plan).rfind("cpu_", 0), 0u) << plan;
    std::vector<int> data(4 << 20, rank);
    WEFT_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, nullptr));
    EXPECT_EQ(data, std::vector<int>(data.size(), 10));
    run_cases(cases, rank, kRanks, comm, &watchdog);
  });
}

// CPU nodes get all collectives of a group before any of them runs.
TEST(CpuNodes, TakeGroupsOfManyCallsAndMixThemWithOthers) {
  for (const char* plan : kPlans) {
    const ScopedEnvironment environment{{"WEFT_PLAN", forcing(plan)}};
    constexpr int kRanks = 4, kCalls = 150;
    run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
      std::vector<std::vector<int>> data;
      for (int i = 0; i < kCalls; i++) data.emplace_back(1 + i * 7, rank + i);
      std::vector<int> all(kRanks);
      WEFT_OK(ncclGroupStart());
      for (std::vector<int>& d : data)
        WEFT_OK(ncclAllReduce(d.data(), d.data(), d.size(), ncclInt32, ncclSum, comm, nullptr));
      WEFT_OK(ncclAllGather(&rank, all.data(), 1, ncclInt32, comm, nullptr));
      WEFT_OK(ncclGroupEnd());
      for (int i = 0; i < kCalls; i++)
        EXPECT_EQ(data[static_cast<size_t>(i)],
                  std::vector<int>(static_cast<size_t>(1 + i * 7), 6 + 4 * i))
            << i;
      EXPECT_EQ(all, std::vector<int>({0, 1, 2, 3}));
    });
  }
}

// Two ranks, and a second node without work.
constexpr const char* kIdleNode =
    R"({"weft_schedule": 1, "name": "idle", "collective": "all_reduce",
 "ranks": 2, "chunks": 1, "cpu_nodes": 2, "parts": [
 {"lanes": [[{"from": [{"input": 0}], "to": [{"peer": 2}]}], [{"from": [{"peer": 2}], "to": [{"output": 0}]}]]},
 {"lanes": [[{"from": [{"input": 0}], "to": [{"peer": 2}]}], [{"from": [{"peer": 2}], "to": [{"output": 0}]}]]},
 {"scratch": 1, "lanes": [[{"from": [{"peer": 0}, {"peer": 1}], "to": [{"scratch": 0}]},
   {"from": [{"scratch": 0}], "to": [{"peer": 0}, {"peer": 1}]}]]},
 {"lanes": []}]})";

WEFT_SCENARIO(all_reduce_works) {
  with_communicator(context, [&](ncclComm_t comm) { expect_all_reduce_works(comm, 5000); });
}

TEST(CpuNodes, MayHaveNothingToDoInAFileAndFilesThatCannotHaveThemAreSetAside) {
  const std::string path =
      testing::TempDir() + "weft_idle_node." + std::to_string(getpid()) + ".json";
  std::ofstream(path) << kIdleNode;
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  run_ranks_as_processes("all_reduce_works", 2);
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("all_reduce_works", 2, options);
  std::remove(path.c_str());
}

TEST(CpuNodes, FinishForOthersWhenTheirRankLeavesFirst) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_pair")}};
  for (int round = 0; round < 5; round++) {
    const ncclUniqueId id = new_unique_id();
    run_threads(3, [&](int rank) {
      ncclComm_t comm = nullptr;
      WEFT_OK(ncclCommInitRank(&comm, 3, id, rank));
      expect_all_reduce_works(comm, 200000);
      WEFT_OK(ncclCommDestroy(comm));
    });
  }
}

TEST(CpuNodes, EndTheirWaitsOnAnAbort) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_reduce")}};
  for (const int aborted : {0, 1}) {  // rank 0 has the CPU node
    CommSet set(3);
    std::vector<PendingCall> blocked;
    for (int r = 0; r < 2; r++)
      blocked.emplace_back([comm = set[r]] {
        std::vector<float> data(1 << 20, 1.0f);
        return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm,
                             nullptr);
      });
    ASSERT_EQ(blocked[0].wait_for(std::chrono::milliseconds(100)), ncclNumResults);
    ncclComm_t comm = set.take(aborted);
    PendingCall abort([comm] { return ncclCommAbort(comm); });
    EXPECT_EQ(abort.wait_for(std::chrono::seconds(5)), ncclSuccess);
    for (PendingCall& call : blocked) {
      const ncclResult_t result = call.wait_for(std::chrono::seconds(5));
      EXPECT_NE(result, ncclNumResults) << "still blocked";
      EXPECT_NE(result, ncclSuccess);
    }
    for (int r = 0; r < 3; r++) {
      if (r == aborted) continue;
      WEFT_OK(ncclCommAbort(set.take(r)));
    }
  }
}

// The argument is the victim. Rank 0 has the CPU node.
WEFT_SCENARIO(one_dies_beside_cpu_nodes) {
  const int victim = std::stoi(context.argument);
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank));
  expect_all_reduce_works(comm);
  die_when_all_are_here(comm, victim);
  std::vector<float> data(1 << 20, 1.0f);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_TRUE(result == ncclRemoteError || result == ncclSystemError) << result;
  const std::string text = ncclGetLastError(comm);
  EXPECT_NE(text.find("rank " + context.argument), std::string::npos) << text;
  WEFT_OK(ncclCommAbort(comm));
}

TEST(CpuNodes, LetAllSurvivorsKnowOfAKilledRank) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_reduce")}};
  for (const int victim : {0, 1}) {
    ProcessOptions options;
    options.argument = std::to_string(victim);
    const auto results = run_processes("one_dies_beside_cpu_nodes", 3, options);
    for (int r = 0; r < 3; r++) {
      const ProcessResult& result = results[static_cast<size_t>(r)];
      EXPECT_FALSE(result.hung) << "rank " << r << ":\n" << result.output;
      if (r == victim) continue;
      EXPECT_EQ(result.exit_code, 0) << "rank " << r << ":\n" << result.output;
    }
  }
}

TEST(CpuNodes, FindThatRanksMakeDifferentCalls) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_reduce")}};
  CommSet set(3);
  std::vector<PendingCall> calls;
  for (int r = 0; r < 3; r++)
    calls.emplace_back([comm = set[r], r] {
      std::vector<int> data(5000, 1);
      return ncclAllReduce(data.data(), data.data(), r == 2 ? 4000 : 5000, ncclInt32, ncclSum, comm,
                           nullptr);
    });
  for (PendingCall& call : calls) {
    const ncclResult_t result = call.wait_for(std::chrono::seconds(10));
    EXPECT_NE(result, ncclNumResults) << "still blocked";
    EXPECT_NE(result, ncclSuccess);
  }
  EXPECT_NE(std::string(ncclGetLastError(set[0])).find("CPU node 3"), std::string::npos)
      << ncclGetLastError(set[0]);
  for (int r = 0; r < 3; r++) WEFT_OK(ncclCommAbort(set.take(r)));
}

TEST(CpuNodes, NameTheRankThatDoesNotCome) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_pair")}, {"WEFT_TIMEOUT", "0.3"}};
  CommSet set(3);
  std::vector<PendingCall> calls;
  for (int r = 0; r < 2; r++)
    calls.emplace_back([comm = set[r]] {
      int x = 1;
      return ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr);
    });
  for (PendingCall& call : calls)
    EXPECT_EQ(call.wait_for(std::chrono::seconds(10)), ncclRemoteError);
  const std::string texts =
      std::string(ncclGetLastError(set[0])) + std::string(ncclGetLastError(set[1]));
  // Rank 2 owns CPU node 4, so this node never learns about the call.
  EXPECT_NE(texts.find("CPU node 4"), std::string::npos) << texts;
  EXPECT_NE(texts.find("WEFT_TIMEOUT"), std::string::npos) << texts;
  for (int r = 0; r < 3; r++) WEFT_OK(ncclCommAbort(set.take(r)));
}

WEFT_SCENARIO(cpu_nodes_of_several_hosts) {
  with_communicator(context, [&](ncclComm_t comm) {
    int x = 1;
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("several hosts"), std::string::npos)
        << ncclGetLastError(comm);
  });
}

TEST(CpuNodes, AreRefusedWithAReasonWhereRanksShareNoMemory) {
  const ScopedEnvironment environment{{"WEFT_PLAN", forcing("cpu_reduce")}};
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("cpu_nodes_of_several_hosts", 2, options);
}

}  // namespace
}  // namespace weft::test
