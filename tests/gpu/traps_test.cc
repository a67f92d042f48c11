// Situations that deadlock when kernels wait for each other: code loaded late, allocations,
// hardware queues, thread blocks that do not fit. Each runs in its own process, where everything
// happens for the first time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"
#include "tests/support/patterns.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Plays a scenario in one process with this environment. Returns its output if it succeeded.
std::string play(const char* scenario, const std::string& argument,
                 const std::map<std::string, std::string>& environment = {}) {
  ProcessOptions options;
  options.limit = seconds(30);
  options.argument = argument;
  options.environment = [&](int) { return environment; };
  const std::vector<ProcessResult> results = run_processes(scenario, 1, options);
  EXPECT_TRUE(results[0].exit_code == 0 && !results[0].hung)
      << scenario << ' ' << argument << (results[0].hung ? " hung" : " failed") << ":\n"
      << results[0].output;
  return results[0].output;
}

// Rank 0's kernel waits on one communicator. Meanwhile everything else is used for the first time
// on another communicator.
WEFT_SCENARIO(first_use_while_a_kernel_waits) {
  run_team(2,
           [](Rank& me) {
             const auto waiting = me.make(make_case(Operation::kSendRecv, 100));
             std::vector<std::unique_ptr<DeviceCase>> runs;
             const auto add = [&](const Case& c) {
               runs.push_back(std::make_unique<DeviceCase>(c, me.rank, me.nranks, me.comms[1],
                                                           *me.arena, me.streams[1]));
             };
             for (const Operation operation : all_operations())
               for (const size_t count : {size_t{64}, size_t{40000}})
                 add(make_case(operation, count));
             for (const NumberType& type : all_types())
               for (const Reduction reduction : all_reductions()) {
                 Case c = make_case(Operation::kAllReduce, 64, type.id);
                 c.reduction = reduction;
                 add(c);
                 c.count = 20000;
                 add(c);
               }
             me.meet();
             if (me.rank == 0) {
               WEFT_OK(waiting->launch(me.streams[0]));
             }
             std::this_thread::sleep_for(milliseconds(100));
             for (const auto& run : runs) {
               WEFT_OK(run->launch(me.streams[1]));
               expect_right(run->check(me.streams[1]));
             }
             if (me.rank == 1) {
               WEFT_OK(waiting->launch(me.streams[0]));
             }
             expect_right(waiting->check(me.streams[0]));
           },
           {.comms = 2, .streams = 2, .arena_bytes = size_t{128} << 20});
}

TEST(Trap, OfLateLoadingDoesNotDeadlock) {
  play("first_use_while_a_kernel_waits", "", {{"CUDA_MODULE_LOADING", "LAZY"}});
}

TEST(Trap, OfEagerLoadingDoesNotDeadlockEither) {
  play("first_use_while_a_kernel_waits", "", {{"CUDA_MODULE_LOADING", "EAGER"}});
}

// Rank 0 calls, and then rank 1 makes its very first call. The argument says what the application
// of rank 1 does meanwhile.
WEFT_SCENARIO(first_call_while_a_kernel_waits) {
  run_team(2,
           [&](Rank& me) {
             for (const Operation operation : all_operations()) {
               Case c = make_case(operation, 500000);
               c.in_place = can_be_in_place(operation);  // an in-place all-to-all needs a copy
               me.arena->reset();
               const auto run = me.make(c);
               me.meet();
               void *memory = nullptr, *large = nullptr;
               if (me.rank == 1) {
                 std::this_thread::sleep_for(milliseconds(50));
                 if (context.argument == "cudaMalloc") {
                   WEFT_CUDA(cudaMalloc(&memory, 1000));
                   WEFT_CUDA(cudaMalloc(&large, size_t{256} << 20));
                 } else if (context.argument == "cudaMallocAsync") {
                   WEFT_CUDA(cudaMallocAsync(&memory, 1000, me.stream()));
                   WEFT_CUDA(cudaMallocAsync(&large, size_t{64} << 20, me.stream()));
                 }
               }
               WEFT_OK(run->launch(me.stream()));
               expect_right(run->check(me.stream()));
               me.meet();  // freeing always waits for kernels
               if (memory != nullptr) {
                 WEFT_CUDA(cudaFree(memory));
                 WEFT_CUDA(cudaFree(large));
               }
               me.meet();
             }
           },
           {.arena_bytes = size_t{64} << 20});
}

TEST(Trap, OfAllocationInTheLibraryDoesNotDeadlock) {
  play("first_call_while_a_kernel_waits", "nothing");
}
TEST(Trap, OfCudaMallocInTheApplicationDoesNotDeadlock) {
  play("first_call_while_a_kernel_waits", "cudaMalloc");
}
TEST(Trap, OfCudaMallocAsyncInTheApplicationDoesNotDeadlock) {
  play("first_call_while_a_kernel_waits", "cudaMallocAsync");
}

// All ranks but the last make many calls. They finish the first call without the last rank: in it
// they only send to the last rank or pass data on. The last rank comes late, to a GPU full of
// thread blocks that wait for it. The argument is the number of ranks.
WEFT_SCENARIO(late_rank) {
  run_team(std::stoi(context.argument), [](Rank& me) {
    for (const Operation operation :
         {Operation::kBroadcast, Operation::kReduce, Operation::kScatter})
      for (const size_t first : {size_t{3000}, size_t{20000}, size_t{35000}, size_t{60000}})
        for (const size_t then : {size_t{64}, size_t{2000}, size_t{4000}, size_t{12000}}) {
          me.arena->reset();
          std::vector<std::unique_ptr<DeviceCase>> runs;
          Case c = make_case(operation, first / (operation == Operation::kScatter ? 8 : 1));
          c.root = operation == Operation::kReduce ? me.nranks - 1 : 0;
          runs.push_back(me.make(c));
          for (int i = 0; i < 3; i++)
            runs.push_back(me.make(make_case(Operation::kAllReduce, then)));
          me.meet();
          if (me.rank == me.nranks - 1) std::this_thread::sleep_for(milliseconds(10));
          for (const auto& run : runs) WEFT_OK(run->launch(me.stream()));
          for (const auto& run : runs) expect_right(run->check(me.stream()));
          me.meet();
        }
  });
}

class TrapOfALateRank : public testing::TestWithParam<const char*> {};
TEST_P(TrapOfALateRank, DoesNotDeadlock) { play("late_rank", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, TrapOfALateRank, testing::Values("2", "3", "4", "8"));

// Makes 8 ranks in one process; the argument is the number of hardware queues, or "unset".
WEFT_SCENARIO(eight_ranks) {
  if (context.argument == "unset") {
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  } else {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", context.argument.c_str(), 1);
  }
  run_team(8, [](Rank&) {});
}

TEST(Trap, OfTooFewHardwareQueuesIsWarnedOf) {
  const char* warning = "NCCL WARN.*CUDA_DEVICE_MAX_CONNECTIONS";
  const std::string few = play("eight_ranks", "unset", {{"NCCL_DEBUG", "WARN"}});
  EXPECT_TRUE(says(few, warning)) << few;
  const std::string many = play("eight_ranks", "32", {{"NCCL_DEBUG", "WARN"}});
  EXPECT_FALSE(says(many, warning)) << many;
}

WEFT_SCENARIO(crowded) {
  const int n = std::stoi(context.argument);
  const auto ranks = static_cast<size_t>(n);
  run_team(n, [&](Rank& me) {
    for (const Operation operation : all_operations()) {
      const bool blocks = operation != Operation::kAllReduce && operation != Operation::kReduce &&
                          operation != Operation::kBroadcast && operation != Operation::kBcast &&
                          operation != Operation::kSendRecv;
      const auto run = me.make(make_case(operation, blocks ? (1u << 20) / ranks : 1u << 20));
      me.meet();
      for (int turn = 0; turn < 5; ++turn) {
        run->refill(me.stream());
        WEFT_OK(run->launch(me.stream()));
      }
      expect_right(run->check(me.stream()));
      me.arena->reset();
    }
  });
}

TEST(Trap, OfSixteenRanksOnOneGpuDoesNotDeadlock) { play("crowded", "16"); }
TEST(Trap, OfThirtyTwoRanksOnOneGpuDoesNotDeadlock) { play("crowded", "32"); }

// Several threads use streams for the first time at once, while their kernels wait for each other.
// The argument is the seed.
WEFT_SCENARIO(first_uses_at_once) {
  const uint64_t seed = std::stoull(context.argument);
  run_team(4,
           [&](Rank& me) {
             Random common(seed), own(mix(seed, static_cast<uint64_t>(me.rank)));
             std::vector<std::unique_ptr<DeviceCase>> runs;
             for (size_t i = 0; i < 12; ++i)
               runs.push_back(std::make_unique<DeviceCase>(
                   make_case(common.pick(all_operations()), 1 + common.below(30000)), me.rank,
                   me.nranks, me.comm(), *me.arena, cudaStreamPerThread));
             me.meet();
             for (int turn = 0; turn < 60; ++turn) {
               if (own.below(16) == 0)
                 std::this_thread::sleep_for(std::chrono::microseconds(own.below(3000)));
               const size_t calls = common.below(6) == 0 ? 4 : 1;
               WEFT_OK(ncclGroupStart());
               for (size_t i = 0; i < calls; ++i) {
                 const size_t run = common.below(runs.size());
                 WEFT_OK(runs[run]->launch(me.streams[run % me.streams.size()]));
               }
               WEFT_OK(ncclGroupEnd());
             }
             for (const cudaStream_t stream : me.streams) WEFT_CUDA(cudaStreamSynchronize(stream));
           },
           {.streams = 3});
}

TEST(Trap, OfStreamsThatAreFirstUsedAtOnceDoesNotDeadlock) {
  for (uint64_t i = 0; i < 10 && !testing::Test::HasFailure(); ++i)
    play("first_uses_at_once", std::to_string(mix(test_seed(), i)));
}

// Every communicator acts as if it had the GPU to itself. The argument says how they are made.
WEFT_SCENARIO(two_communicators) {
  const bool together = context.argument == "together";
  const ncclUniqueId ids[2] = {new_unique_id(), new_unique_id()};
  run_team(
      8,
      [&](Rank& me) {
        if (together) {
          me.comms.resize(2);
          WEFT_OK(ncclGroupStart());
          for (size_t c = 0; c < 2; ++c)
            WEFT_OK(ncclCommInitRank(&me.comms[c], me.nranks, ids[c], me.rank));
          WEFT_OK(ncclGroupEnd());
        }
        std::vector<std::unique_ptr<DeviceCase>> runs;
        for (size_t c = 0; c < 2; ++c)
          runs.push_back(std::make_unique<DeviceCase>(
              make_case(c == 0 ? Operation::kAllReduce : Operation::kAllGather, 300000 >> (3 * c)),
              me.rank, me.nranks, me.comms[c], *me.arena, me.streams[c]));
        me.meet();
        for (int turn = 0; turn < 30; ++turn) {
          for (size_t c = 0; c < 2; ++c) {
            runs[c]->refill(me.streams[c]);
            WEFT_OK(runs[c]->launch(me.streams[c]));
          }
        }
        for (size_t c = 0; c < 2; ++c) expect_right(runs[c]->check(me.streams[c]));
      },
      {.comms = together ? 0 : 2, .streams = 2});
}

TEST(Trap, OfTwoCommunicatorsOfEightRanksAtOnceDoesNotDeadlock) {
  play("two_communicators", "one by one");
}
TEST(Trap, OfTwoCommunicatorsMadeTogetherDoesNotDeadlock) { play("two_communicators", "together"); }

// Rank 1 has its data and leaves. Rank 0 still waits for rank 2, which has not launched yet. The
// argument says what moves the data.
WEFT_SCENARIO(one_leaves_while_another_waits) {
  TeamOptions options;
  options.config = ncclConfig_t NCCL_CONFIG_INITIALIZER;
  if (context.argument == "copy engines") options.config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
  run_team(
      3,
      [](Rank& me) {
        const auto run = me.make(make_case(Operation::kSendRecv, 100));
        me.meet();
        if (me.rank == 2) std::this_thread::sleep_for(milliseconds(300));
        WEFT_OK(run->launch(me.stream()));
        expect_right(run->check(me.stream()));
        if (me.rank != 1) return;
        WEFT_OK(ncclCommDestroy(me.comm()));
        me.comms.clear();
      },
      options);
}

TEST(Trap, OfARankThatLeavesWhileAKernelWaitsDoesNotDeadlock) {
  play("one_leaves_while_another_waits", "kernels");
}
TEST(Trap, OfARankThatLeavesWhileARingWaitsDoesNotDeadlock) {
  play("one_leaves_while_another_waits", "host_fifos", {{"NCCL_P2P_DISABLE", "1"}});
}
TEST(Trap, OfARankThatLeavesWhileACopyWaitsDoesNotDeadlock) {
  play("one_leaves_while_another_waits", "copy engines");
}

// A communicator comes and goes while another one exists. Its memory is not freed meanwhile, so the
// next communicator must reuse it.
WEFT_SCENARIO(communicators_beside_another) {
  run_team(2, [](Rank& me) {
    const auto run = me.make(make_case(Operation::kAllReduce, 100));
    const auto once = [&] {
      ncclComm_t part = nullptr;
      WEFT_OK(ncclCommSplit(me.comm(), 0, me.rank, &part, nullptr));
      me.meet();
      WEFT_OK(ncclCommDestroy(part));
      me.meet();
    };
    size_t before = 0, after = 0, total = 0;
    for (int i = 0; i < 3; ++i) once();
    WEFT_CUDA(cudaMemGetInfo(&before, &total));
    me.meet();
    for (int i = 0; i < 10; ++i) once();
    WEFT_CUDA(cudaMemGetInfo(&after, &total));
    EXPECT_LT(before, after + (size_t{4} << 20)) << "free before and after";
    me.meet();
    WEFT_OK(run->launch(me.stream()));
    expect_right(run->check(me.stream()));
  });
}

TEST(Trap, OfMemoryThatIsKeptIsNotALeak) { play("communicators_beside_another", ""); }

}  // namespace
}  // namespace weft::test
