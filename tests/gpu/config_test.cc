// Neither a communicator's configuration nor the environment changes a result.
#include <gtest/gtest.h>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"
#include "tests/gpu/support/waiting.h"
#include "tests/support/environment.h"
#include "tests/support/patterns.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

class GpuConfig : public GpuTest {};

ncclConfig_t with(const std::function<void(ncclConfig_t&)>& change) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  change(config);
  return config;
}

// Small, medium and large counts of all operations, in and out of place.
void run_everything(Rank& me) {
  for (const Operation operation : all_operations())
    for (const size_t count : {size_t{1}, size_t{999}, size_t{120000}})
      for (const bool in_place : {false, true}) {
        Case c = make_case(operation, count);
        c.in_place = in_place && can_be_in_place(operation);
        c.root = me.nranks - 1;
        me.run(c);
      }
}

TEST_F(GpuConfig, LimitsOfThreadBlocksGiveRightResults) {
  for (const auto& limits :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {4, 8}, {16, 16}, {1, 64}, {64, 1000}}) {
    TeamOptions options;
    options.config = with([&](ncclConfig_t& config) {
      config.minCTAs = limits.first;
      config.maxCTAs = limits.second;
    });
    run_team(3, run_everything, options);
  }
}

TEST_F(GpuConfig, TheEnvironmentsLimitOfThreadBlocksGivesRightResults) {
  for (const char* most : {"1", "3", "32"}) {
    const ScopedEnvironment environment{{"NCCL_MAX_CTAS", most}};
    run_team(3, run_everything);
  }
}

TEST_F(GpuConfig, LimitsThatDifferBetweenRanksGiveRightResults) {
  const ncclUniqueId id = new_unique_id();
  Arena arenas[2] = {{size_t{48} << 20, Origin::kCudaMalloc},
                     {size_t{48} << 20, Origin::kCudaMalloc}};
  stream_number(0);
  run_threads(
      2,
      [&](int r) {
        ncclConfig_t config = with([&](ncclConfig_t& c) { c.maxCTAs = r == 0 ? 2 : 24; });
        ncclComm_t comm = nullptr;
        WEFT_OK(ncclCommInitRankConfig(&comm, 2, id, r, &config));
        Rank me{r, 2, {comm}, {stream_number(static_cast<size_t>(r))}, &arenas[r], nullptr};
        run_everything(me);
        WEFT_OK(ncclCommDestroy(comm));
      },
      std::chrono::seconds(20));
}

// Ranks at the end of a chain or a tree have less work than the ranks in between. Some plans sum in
// the order of ranks. All ranks must still split data into the same messages.
TEST_F(GpuConfig, PlansByHandGiveRightResults) {
  const auto run = [](Rank& me) {
    for (const Operation operation :
         {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
          Operation::kBroadcast, Operation::kReduce})
      for (const size_t count : {size_t{1}, size_t{300}, size_t{4096}, size_t{70000}}) {
        Case c = make_case(operation, count);
        const bool rooted = operation == Operation::kBroadcast || operation == Operation::kReduce;
        for (c.root = 0; c.root < (rooted ? me.nranks : 1); c.root++) me.run(c);
      }
  };
  for (const char* plans :
       {"all_reduce=ring,all_gather=ring,reduce_scatter=ring,broadcast=ring,reduce=ring",
        "all_reduce=one_round,broadcast=tree,reduce=tree", "all_reduce=chain",
        "all_reduce=halving"})
    for (const int n : {2, 4, 8}) {
      const ScopedEnvironment environment{{"WEFT_PLAN", plans}, {"WEFT_TIMEOUT", "5"}};
      run_team(n, run);
    }
}

TEST_F(GpuConfig, PoliciesGiveRightResults) {
  for (const int policy : {NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY}) {
    TeamOptions options;
    options.config = with([&](ncclConfig_t& config) { config.CTAPolicy = policy; });
    run_team(4, run_everything, options);
  }
}

TEST_F(GpuConfig, AGroupMayMixCommunicatorsOfDifferentLimits) {
  const ncclUniqueId ids[2] = {new_unique_id(), new_unique_id()};
  Arena arenas[2] = {{size_t{48} << 20, Origin::kCudaMalloc},
                     {size_t{48} << 20, Origin::kCudaMalloc}};
  stream_number(0);
  run_threads(
      2,
      [&](int r) {
        ncclComm_t comms[2] = {};
        std::unique_ptr<DeviceCase> runs[2];
        for (size_t i = 0; i < 2; ++i) {
          ncclConfig_t config = with([&](ncclConfig_t& c) { c.maxCTAs = i == 0 ? 1 : 16; });
          WEFT_OK(ncclCommInitRankConfig(&comms[i], 2, ids[i], r, &config));
        }
        const cudaStream_t stream = stream_number(static_cast<size_t>(r));
        for (size_t i = 0; i < 2; ++i)
          runs[i] = std::make_unique<DeviceCase>(make_case(Operation::kAllReduce, 50000), r, 2,
                                                 comms[i], arenas[r], stream);
        WEFT_OK(ncclGroupStart());
        for (const auto& run : runs) WEFT_OK(run->launch(stream));
        WEFT_OK(ncclGroupEnd());
        for (const auto& run : runs) expect_right(run->check(stream));
        for (ncclComm_t comm : comms) WEFT_OK(ncclCommDestroy(comm));
      },
      std::chrono::seconds(20));
}

// No thread blocks move data; the copy engines copy it.
class CopyEngines : public GpuTest {
 protected:
  static TeamOptions options() {
    TeamOptions options;
    options.config = with([](ncclConfig_t& config) { config.CTAPolicy = NCCL_CTA_POLICY_ZERO; });
    return options;
  }
};

TEST_F(CopyEngines, GiveRightResultsInEveryOperation) {
  for (const int n : {1, 2, 3, 4, 8}) run_team(n, run_everything, options());
}

TEST_F(CopyEngines, GiveRightResultsForManyCallsInARow) {
  run_team(
      4,
      [](Rank& me) {
        std::vector<std::unique_ptr<DeviceCase>> runs;
        for (const Operation operation : {Operation::kAllGather, Operation::kAlltoAll,
                                          Operation::kBroadcast, Operation::kSendRecv})
          for (const size_t count : {size_t{7}, size_t{100000}})
            runs.push_back(me.make(make_case(operation, count)));
        me.meet();
        for (int turn = 0; turn < 50; ++turn)
          for (const auto& run : runs) {
            run->refill(me.stream());
            WEFT_OK(run->launch(me.stream()));
          }
        for (const auto& run : runs) expect_right(run->check(me.stream()));
      },
      options());
}

TEST_F(CopyEngines, GiveRightResultsInGraphs) {
  run_team(
      4,
      [](Rank& me) {
        for (const Operation operation : {Operation::kAllGather, Operation::kAlltoAll,
                                          Operation::kBroadcast, Operation::kSendRecv}) {
          me.arena->reset();
          const auto run = me.make(make_case(operation, 60000));
          me.meet();
          const Graph graph(me.stream(), [&] { WEFT_OK(run->launch(me.stream())); });
          me.meet();
          for (int i = 0; i < 50; ++i) {
            run->refill(me.stream());
            graph.replay(me.stream());
          }
          expect_right(run->check(me.stream()));
          me.meet();
        }
      },
      options());
}

TEST_F(CopyEngines, StopWaitingWhenTheyAreAborted) {
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[2] = {};
  run_threads(2, [&](int r) {
    ncclConfig_t config = *options().config;
    WEFT_OK(ncclCommInitRankConfig(&comms[r], 2, id, r, &config));
  });
  Arena arena(size_t{16} << 20, Origin::kCudaMalloc);
  char* memory = arena.take(size_t{12} << 20);
  const cudaStream_t stream = stream_number(0);
  WEFT_OK(ncclAllGather(memory, memory + (size_t{4} << 20), 500000, ncclFloat32, comms[0], stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (ncclComm_t comm : comms) expect_abort_succeeds(comm);
  expect_usable(stream, memory);
  if (!HasFailure()) expect_new_communicators_work();
}

// The scratch memory is small, so that messages need many pieces.
TEST_F(CopyEngines, MoveLargeMessagesPieceByPiece) {
  const ScopedEnvironment environment{{"WEFT_SCRATCH_BYTES", "1M"}};
  for (const int n : {2, 4}) {
    TeamOptions more = options();
    more.arena_bytes = size_t{96} << 20;
    run_team(
        n,
        [](Rank& me) {
          for (const Operation operation :
               {Operation::kBroadcast, Operation::kAllGather, Operation::kAlltoAll,
                Operation::kGather, Operation::kScatter, Operation::kSendRecv})
            for (const size_t count : {size_t{131072}, size_t{700001}}) {
              Case c = make_case(operation, count);
              c.in_place = me.nranks == 4 && can_be_in_place(operation);
              me.run(c);
            }
        },
        more);
  }
}

// Plays a scenario in its own process. Returns its log about what moves data.
std::string log_of(const char* scenario) {
  ProcessOptions process;
  process.limit = std::chrono::seconds(40);
  process.environment = [](int) {
    return std::map<std::string, std::string>{
        {"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", "INIT,TUNING"}, {"WEFT_SCRATCH_BYTES", "1M"}};
  };
  const std::vector<ProcessResult> results = run_processes(scenario, 1, process);
  EXPECT_TRUE(results[0].exit_code == 0 && !results[0].hung) << results[0].output;
  return results[0].output;
}

// More pieces than a queue should hold, because one thread may launch for several ranks.
WEFT_SCENARIO(copies_of_large_messages) {
  TeamOptions options;
  options.config = with([](ncclConfig_t& config) { config.CTAPolicy = NCCL_CTA_POLICY_ZERO; });
  options.arena_bytes = size_t{96} << 20;
  run_team(
      8,
      [](Rank& me) {
        for (const Operation operation : {Operation::kBroadcast, Operation::kSendRecv})
          for (const size_t count : {size_t{4400000}, size_t{1000}})
            me.run(make_case(operation, count));
      },
      options);
}

TEST_F(CopyEngines, LeaveTheLargestMessagesToKernels) {
  const std::string log = log_of("copies_of_large_messages");
  EXPECT_TRUE(says(log, "rank 7: copy engines move data, in pieces of up to 128 KiB")) << log;
  EXPECT_TRUE(says(log, "rank 7: broadcast runs in kernels, copies of such sizes")) << log;
  EXPECT_TRUE(says(log, "rank 7: send_?recv runs in kernels, copies of such sizes")) << log;
}

TEST_F(CopyEngines, MayBeLaunchedForAllRanksByOneThread) {
  constexpr int kRanks = 3;
  const ScopedEnvironment environment{{"WEFT_SCRATCH_BYTES", "1M"}};
  const ncclUniqueId id = new_unique_id();
  std::vector<ncclComm_t> comms(kRanks);
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int r = 0; r < kRanks; ++r)
    arenas.push_back(std::make_unique<Arena>(size_t{64} << 20, Origin::kCudaMalloc));
  stream_number(0);
  run_threads(kRanks, [&](int r) {
    ncclConfig_t config = *options().config;
    WEFT_OK(ncclCommInitRankConfig(&comms[static_cast<size_t>(r)], kRanks, id, r, &config));
  });
  for (const Operation operation : all_operations())
    for (const size_t count : {size_t{10}, size_t{700000}}) {
      std::vector<std::unique_ptr<DeviceCase>> runs;
      for (size_t r = 0; r < kRanks; ++r) {
        arenas[r]->reset();
        runs.push_back(std::make_unique<DeviceCase>(make_case(operation, count),
                                                    static_cast<int>(r), kRanks, comms[r],
                                                    *arenas[r], stream_number(r)));
      }
      WEFT_OK(ncclGroupStart());
      for (size_t r = 0; r < kRanks; ++r) WEFT_OK(runs[r]->launch(stream_number(r)));
      WEFT_OK(ncclGroupEnd());
      for (size_t r = 0; r < kRanks; ++r) expect_right(runs[r]->check(stream_number(r)));
    }
  run_threads(kRanks, [&](int r) { WEFT_OK(ncclCommDestroy(comms[static_cast<size_t>(r)])); });
}

WEFT_SCENARIO(copies_for_one_of_two) {
  WEFT_CUDA(cudaSetDevice(0));
  const ncclUniqueId id = new_unique_id();
  Arena arenas[2] = {{size_t{48} << 20, Origin::kCudaMalloc},
                     {size_t{48} << 20, Origin::kCudaMalloc}};
  stream_number(0);
  run_threads(
      2,
      [&](int r) {
        ncclConfig_t config = with([&](ncclConfig_t& c) {
          c.CTAPolicy = r == 0 ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT;
        });
        ncclComm_t comm = nullptr;
        WEFT_OK(ncclCommInitRankConfig(&comm, 2, id, r, &config));
        Rank me{r, 2, {comm}, {stream_number(static_cast<size_t>(r))}, &arenas[r], nullptr};
        run_everything(me);
        WEFT_OK(ncclCommDestroy(comm));
      },
      std::chrono::seconds(20));
}

TEST_F(CopyEngines, AreNotUsedUnlessAllRanksAskForThem) {
  const std::string log = log_of("copies_for_one_of_two");
  EXPECT_TRUE(says(log, "rank 0: data is moved by kernels, not by copy engines: rank 1 does not"))
      << log;
  EXPECT_FALSE(says(log, "copy engines move data")) << log;
}

TEST_F(CopyEngines, EndAWaitAtTheTimeoutAndNameThePeer) {
  const ScopedEnvironment environment{{"WEFT_TIMEOUT", "1"}};
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[2] = {};
  run_threads(2, [&](int r) {
    ncclConfig_t config = *options().config;
    WEFT_OK(ncclCommInitRankConfig(&comms[r], 2, id, r, &config));
  });
  Arena arena(size_t{16} << 20, Origin::kCudaMalloc);
  char* memory = arena.take(size_t{12} << 20);
  const cudaStream_t stream = stream_number(0);
  WEFT_OK(ncclAllGather(memory, memory + (size_t{4} << 20), 500000, ncclFloat32, comms[0], stream));
  EXPECT_NE(async_error_within(comms[0], std::chrono::seconds(6)), ncclSuccess);
  const std::string text = ncclGetLastError(comms[0]);
  EXPECT_TRUE(says(text, "peer 1")) << text;
  EXPECT_TRUE(says(text, "WEFT_TIMEOUT")) << text;
  EXPECT_EQ(finish_within(stream, std::chrono::seconds(5)), "");
  for (ncclComm_t comm : comms) expect_abort_succeeds(comm);
  if (!HasFailure()) expect_new_communicators_work();
}

}  // namespace
}  // namespace weft::test
