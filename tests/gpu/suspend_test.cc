// Suspended communicators give their GPU memory back and go on after ncclCommResume.
#include <gtest/gtest.h>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/team.h"
#include "tests/support/environment.h"
#include "tests/support/memory_statistic.h"
#include "tests/support/patterns.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

size_t free_gpu_bytes() {
  size_t free = 0;
  size_t total = 0;
  WEFT_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

// Ids: the communicator that is suspended, and one for meetings.
WEFT_SCENARIO(suspended_processes) {
  ProcessRank me(context);
  Arena arena(size_t{256} << 20, Origin::kRegistered, me.comm());
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, me.nranks(), context.ids[1], me.rank()));
  const auto work = [&] {
    for (const Operation operation : all_operations())
      for (const size_t count : {size_t{5}, size_t{70000}, size_t{2} << 20}) {
        arena.reset();
        Case c = plain(operation, count);
        DeviceCase run(c, me.rank(), me.nranks(), comm, arena, me.stream());
        WEFT_OK(run.launch(me.stream()));
        EXPECT_EQ(run.check(me.stream()), "") << to_string(c, me.nranks());
      }
  };
  work();
  for (int round = 0; round < 3; round++) {
    me.note("round " + std::to_string(round));
    const uint64_t held = statistic(comm, ncclStatGpuMemSuspend);
    EXPECT_GT(held, size_t{1} << 20);
    me.meet(arena);
    const size_t before = free_gpu_bytes();
    me.meet(arena);
    WEFT_OK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 1u);
    me.meet(arena);
    const double given_back = static_cast<double>(free_gpu_bytes()) - static_cast<double>(before);
    EXPECT_GE(given_back, 0.95 * static_cast<double>(held) * me.nranks());
    me.meet(arena);
    WEFT_OK(ncclCommResume(comm));
    EXPECT_EQ(statistic(comm, ncclStatGpuMemSuspended), 0u);
    work();
  }
  WEFT_OK(ncclCommDestroy(comm));
}

class SuspendProcesses : public GpuProcesses {};

TEST_F(SuspendProcesses, GiveBackTheirMemoryAndGoOn) {
  for (const int n : {2, 4}) {
    ProcessOptions options;
    options.limit = std::chrono::seconds(60);
    options.ids = 2;
    run_ranks_as_processes("suspended_processes", n, options);
  }
}

class GpuSuspend : public GpuTest {};

TEST_F(GpuSuspend, RanksAsThreadsGoOnAfterResume) {
  run_team(4, [](Rank& me) {
    for (int round = 0; round < 3; round++) {
      me.run(make_case(Operation::kAllReduce, 50000));
      me.run(make_case(Operation::kSendRecv, 300));
      me.meet();
      WEFT_OK(ncclCommSuspend(me.comm(), NCCL_SUSPEND_MEM));
      EXPECT_EQ(statistic(me.comm(), ncclStatGpuMemSuspended), 1u);
      me.meet();
      WEFT_OK(ncclCommResume(me.comm()));
      me.meet();
      me.run(make_case(Operation::kAllGather, 70000));
    }
  });
}

// ncclCommResume registers again what is still registered, so freed memory must not be among it.
TEST_F(GpuSuspend, MemoryCanBeDeregisteredAndFreedMeanwhile) {
  run_team(2, [](Rank& me) {
    void* memory = nullptr;
    void* handle = nullptr;
    me.meet();
    WEFT_OK(ncclMemAlloc(&memory, size_t{1} << 20));
    WEFT_OK(ncclCommRegister(me.comm(), memory, size_t{1} << 20, &handle));
    me.meet();
    WEFT_OK(ncclCommSuspend(me.comm(), NCCL_SUSPEND_MEM));
    me.meet();
    WEFT_OK(ncclCommDeregister(me.comm(), handle));
    WEFT_OK(ncclMemFree(memory));
    me.meet();
    WEFT_OK(ncclCommResume(me.comm()));
    me.meet();
    me.run(make_case(Operation::kAllReduce, 70000));
  });
}

// A graph holds addresses of the communicator's memory.
TEST_F(GpuSuspend, IsRefusedWhileAGraphThatIsCountedHoldsACall) {
  const ScopedEnvironment environment{{"WEFT_COUNT_GRAPHS", "1"}};
  run_team(2, [](Rank& me) {
    {
      const auto run = me.make(make_case(Operation::kAllReduce, 1000));
      me.meet();
      const Graph graph(me.stream(), [&] { WEFT_OK(run->launch(me.stream())); });
      me.meet();
      EXPECT_EQ(ncclCommSuspend(me.comm(), NCCL_SUSPEND_MEM), ncclInvalidUsage);
      me.meet();
      graph.replay(me.stream());
      expect_right(run->check(me.stream()));
      me.meet();
    }
    me.meet();
    // CUDA drops what a graph held a moment after the graph.
    ncclResult_t result = ncclInvalidUsage;
    WEFT_CUDA(cudaDeviceSynchronize());
    usleep(200000);
    me.meet();
    result = ncclCommSuspend(me.comm(), NCCL_SUSPEND_MEM);
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(me.comm());
    me.meet();
    WEFT_OK(ncclCommResume(me.comm()));
    me.meet();
    me.run(make_case(Operation::kAllReduce, 1000));
  });
}

// Communicators that share thread blocks share the order of launches. The graph holds both. Nothing
// tells when it is gone.
TEST_F(GpuSuspend, IsRefusedForEveryCommunicatorOfAGraph) {
  TeamOptions options;
  options.config = NCCL_CONFIG_INITIALIZER;
  options.config->splitShare = 1;
  run_team(
      2,
      [](Rank& me) {
        ncclComm_t part = nullptr;
        WEFT_OK(ncclCommSplit(me.comm(), 0, me.rank, &part, nullptr));
        me.meet();
        {
          const Case what = make_case(Operation::kAllReduce, 1000);
          DeviceCase first(what, me.rank, me.nranks, me.comm(), *me.arena, me.stream()),
              second(what, me.rank, me.nranks, part, *me.arena, me.stream());
          me.meet();
          const Graph graph(me.stream(), [&] {
            WEFT_OK(first.launch(me.stream()));
            WEFT_OK(second.launch(me.stream()));
          });
          me.meet();
          for (const ncclComm_t comm : {me.comm(), part}) {
            EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidUsage);
            me.meet();
          }
          graph.replay(me.stream());
          expect_right(first.check(me.stream()));
          expect_right(second.check(me.stream()));
          me.meet();
        }
        WEFT_CUDA(cudaDeviceSynchronize());
        usleep(200000);  // as above
        me.meet();
        EXPECT_EQ(ncclCommSuspend(part, NCCL_SUSPEND_MEM), ncclInvalidUsage);
        me.meet();
        WEFT_OK(ncclCommDestroy(part));
      },
      options);
}

// One stream of the group is captured and the other is not.
TEST_F(GpuSuspend, GroupsOfCapturedAndOtherStreamsAreRefused) {
  TeamOptions options;
  options.streams = 2;
  run_team(
      2,
      [](Rank& me) {
        const auto first = me.make(make_case(Operation::kAllReduce, 1000));
        const auto second = me.make(make_case(Operation::kAllReduce, 1000));
        for (const size_t captured : {size_t{0}, size_t{1}}) {
          me.meet();
          cudaGraph_t graph = nullptr;
          WEFT_CUDA(cudaStreamBeginCapture(me.streams[captured], cudaStreamCaptureModeThreadLocal));
          WEFT_OK(ncclGroupStart());
          WEFT_OK(first->launch(me.streams[0]));
          WEFT_OK(second->launch(me.streams[1]));
          EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
          WEFT_CUDA(cudaStreamEndCapture(me.streams[captured], &graph));
          WEFT_CUDA(cudaGraphDestroy(graph));
        }
        me.meet();
        me.run(make_case(Operation::kAllReduce, 1000));
      },
      options);
}

}  // namespace
}  // namespace weft::test
