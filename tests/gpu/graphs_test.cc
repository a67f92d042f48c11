// CUDA graphs: capture and replay of all operations, alone, together and between ordinary calls.
#include <gtest/gtest.h>

#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/team.h"
#include "tests/support/environment.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr int kReplays = 200, kBurst = 10;

void launch(DeviceCase& run, cudaStream_t stream) { WEFT_OK(run.launch(stream)); }

class Graphs : public GpuTest {};
class GraphOf : public GpuTest, public testing::WithParamInterface<Operation> {};

// Replays in bursts without waiting in between. Every replay starts from fresh buffers.
void replay_many(Rank& me, const Case& c) {
  me.arena->reset();
  const auto run = me.make(c);
  const Graph graph(me.stream(), [&] { launch(*run, me.stream()); });
  me.meet();
  int failures = 0;
  for (int burst = 0; burst < kReplays / kBurst; ++burst) {
    run->fill(mix(c.salt, static_cast<uint64_t>(burst)), me.stream());
    for (int i = 0; i < kBurst; ++i) {
      run->refill(me.stream());
      graph.replay(me.stream());
    }
    const std::string bad = run->check(me.stream());
    // Goes on after a failure, because the others wait for this rank.
    if (!bad.empty() && ++failures == 1)
      ADD_FAILURE() << "rank " << me.rank << ", replays " << burst * kBurst << " to "
                    << (burst + 1) * kBurst << " of " << to_string(c, me.nranks) << ": " << bad;
  }
}

void replay_all_counts(int n, Operation operation) {
  run_team(n, [&](Rank& me) {
    for (const size_t count : {size_t{17}, size_t{5000}, size_t{200000}}) {
      for (const bool in_place : {false, true}) {
        if (in_place && !can_be_in_place(operation)) continue;
        Case c = make_case(operation, count);
        c.in_place = in_place;
        c.root = n - 1;
        me.meet();
        replay_many(me, c);
        me.meet();
      }
    }
  });
}

TEST_P(GraphOf, ReplayedManyTimesGivesTheResultsOfTheCall) { replay_all_counts(4, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Every, GraphOf, testing::ValuesIn(all_operations()),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_F(Graphs, OfTwoAndEightRanksGiveTheResultsOfTheCall) {
  replay_all_counts(2, Operation::kAllReduce);
  replay_all_counts(8, Operation::kAllReduce);
}

TEST_F(Graphs, OfOneCommunicatorCanBeReplayedAlternately) {
  run_team(4, [](Rank& me) {
    const auto a = me.make(make_case(Operation::kAllReduce, 1000));
    const auto b = me.make(make_case(Operation::kAllGather, 30000));
    const auto c = me.make(make_case(Operation::kReduceScatter, 70000));
    const auto d = me.make(make_case(Operation::kSendRecv, 333));
    const Graph first(me.stream(), [&] {
      launch(*a, me.stream());
      launch(*b, me.stream());
    });
    const Graph second(me.stream(), [&] {
      launch(*c, me.stream());
      launch(*d, me.stream());
    });
    me.meet();
    for (uint64_t turn = 0; turn < 100; ++turn) {
      if (turn % 20 == 0)
        for (DeviceCase* run : {a.get(), b.get(), c.get(), d.get()})
          run->fill(mix(turn, 5), me.stream());
      for (DeviceCase* run : {a.get(), b.get(), c.get(), d.get()}) run->refill(me.stream());
      first.replay(me.stream());
      second.replay(me.stream());
      if (turn % 3 == 0) first.replay(me.stream());  // not strictly alternating either
      if (turn % 20 == 19)
        for (DeviceCase* run : {a.get(), b.get(), c.get(), d.get()})
          expect_right(run->check(me.stream()));
    }
  });
}

TEST_F(Graphs, MixWithOrdinaryCalls) {
  run_team(4,
           [](Rank& me) {
             const auto captured = me.make(make_case(Operation::kAllReduce, 3000));
             const auto small = me.make(make_case(Operation::kAllReduce, 100));
             const auto large = me.make(make_case(Operation::kAlltoAll, 40000));
             cudaEvent_t event = nullptr;
             WEFT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
             const Graph graph(me.stream(), [&] { launch(*captured, me.stream()); });
             me.meet();
             for (int turn = 0; turn < 60; ++turn) {
               captured->refill(me.stream());
               small->refill(me.stream());
               graph.replay(me.stream());
               launch(*small, me.stream());
               graph.replay(me.stream());
               captured->refill(me.stream());
               graph.replay(me.stream());
               // Runs on another stream after the graph. The next round comes after it.
               WEFT_CUDA(cudaEventRecord(event, me.stream()));
               WEFT_CUDA(cudaStreamWaitEvent(me.streams[1], event, 0));
               large->refill(me.streams[1]);
               launch(*large, me.streams[1]);
               WEFT_CUDA(cudaEventRecord(event, me.streams[1]));
               WEFT_CUDA(cudaStreamWaitEvent(me.stream(), event, 0));
               if (turn % 20 != 19) continue;
               for (DeviceCase* run : {captured.get(), small.get(), large.get()})
                 expect_right(run->check(me.stream()));
             }
             WEFT_CUDA(cudaEventDestroy(event));
           },
           {.streams = 2});
}

TEST_F(Graphs, WithSeveralCollectivesEachReadingTheLastOnesResult) {
  run_team(4, [](Rank& me) {
    // Runs all_reduce in place n times. Every pass multiplies by the number of ranks.
    const size_t count = 50000;
    auto* data = reinterpret_cast<uint64_t*>(me.arena->take(count * 8));
    std::vector<uint64_t> host(count);
    for (size_t i = 0; i < count; ++i) host[i] = i + static_cast<uint64_t>(me.rank);
    const Graph graph(me.stream(), [&] {
      for (int i = 0; i < 3; ++i)
        WEFT_OK(ncclAllReduce(data, data, count, ncclUint64, ncclSum, me.comm(), me.stream()));
    });
    upload(data, host.data(), count * 8, me.stream());
    me.meet();
    for (int i = 0; i < 5; ++i) graph.replay(me.stream());
    download(host.data(), data, count * 8, me.stream());
    const uint64_t factor = uint64_t{1} << (2 * 14);  // 4 ranks, after the first of 15 sums
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += host[i] != (4 * i + 6) * factor ? 1u : 0u;
    EXPECT_EQ(wrong, 0u) << "of " << count << " on rank " << me.rank;
  });
}

TEST_F(Graphs, UpdatedToOtherBuffersUseThose) {
  run_team(3, [](Rank& me) {
    for (const size_t count : {size_t{500}, size_t{100000}}) {
      me.arena->reset();
      const auto first = me.make(make_case(Operation::kAllReduce, count));
      const auto second = me.make(make_case(Operation::kAllReduce, count));
      second->fill(77, me.stream());
      me.meet();
      Graph graph(me.stream(), [&] { launch(*first, me.stream()); });
      const Graph other(me.stream(), [&] { launch(*second, me.stream()); });
      me.meet();
      graph.replay(me.stream());
      expect_right(first->check(me.stream()));
      me.meet();
      EXPECT_TRUE(graph.update(other));
      me.meet();
      first->refill(me.stream());
      for (int i = 0; i < 20; ++i) {
        second->refill(me.stream());
        graph.replay(me.stream());
      }
      expect_right(second->check(me.stream()));
      me.meet();
    }
  });
}

// Fork: `other` joins the capture of `main`, and joins back at the end.
Graph forked(const Rank& me, cudaEvent_t event, const std::function<void()>& on_main,
             const std::function<void()>& on_other) {
  return Graph(me.streams[0], [&, event] {
    WEFT_CUDA(cudaEventRecord(event, me.streams[0]));
    WEFT_CUDA(cudaStreamWaitEvent(me.streams[1], event, 0));
    on_main();
    on_other();
    WEFT_CUDA(cudaEventRecord(event, me.streams[1]));
    WEFT_CUDA(cudaStreamWaitEvent(me.streams[0], event, 0));
  });
}

void replay_forked(Rank& me, size_t other_comm) {
  const auto a = me.make(make_case(Operation::kAllReduce, 60000));
  Case gathered = make_case(Operation::kAllGather, 9000);
  DeviceCase b(gathered, me.rank, me.nranks, me.comms[other_comm], *me.arena, me.stream());
  cudaEvent_t event = nullptr;
  WEFT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  {
    const Graph graph = forked(
        me, event, [&] { launch(*a, me.streams[0]); }, [&] { launch(b, me.streams[1]); });
    me.meet();
    for (int i = 0; i < 100; ++i) {
      a->refill(me.stream());
      b.refill(me.stream());
      graph.replay(me.stream());
    }
    expect_right(a->check(me.stream()));
    expect_right(b.check(me.stream()));
    me.meet();
  }
  WEFT_CUDA(cudaEventDestroy(event));
}

TEST_F(Graphs, ForkedOverTwoStreamsWithACommunicatorEach) {
  run_team(4, [](Rank& me) { replay_forked(me, 1); }, {.comms = 2, .streams = 2});
}

// NCCL orders the operations of one communicator, captured or not. This is a separate suite,
// because a library that does not order them would hang here.
class GraphMixing : public GpuTest {};

TEST_F(GraphMixing, ForkedCaptureMayUseOneCommunicatorOnBothStreams) {
  run_team(4, [](Rank& me) { replay_forked(me, 0); }, {.comms = 1, .streams = 2});
}

TEST_F(GraphMixing, AReplayAndACallOnAnotherStreamNeedNoEventBetweenThem) {
  run_team(4,
           [](Rank& me) {
             const auto captured = me.make(make_case(Operation::kAllReduce, 60000));
             const auto called = me.make(make_case(Operation::kAllReduce, 40000));
             const Graph graph(me.stream(), [&] { launch(*captured, me.stream()); });
             me.meet();
             for (int turn = 0; turn < 50; ++turn) {
               captured->refill(me.streams[0]);
               graph.replay(me.streams[0]);
               called->refill(me.streams[1]);
               launch(*called, me.streams[1]);
             }
             expect_right(captured->check(me.streams[0]));
             expect_right(called->check(me.streams[1]));
             me.meet();
           },
           {.streams = 2});
}

// Then the communicator does not learn about replays. A rank that leaves must still wait for its
// replays. Otherwise the others treat it as a rank that never calls.
TEST_F(GraphMixing, SwitchedOffARankThatLeavesWaitsForItsReplays) {
  const ScopedEnvironment environment{{"NCCL_GRAPH_MIXING_SUPPORT", "0"}};
  run_team(2, [](Rank& me) {
    const auto run = me.make(make_case(Operation::kAllReduce, 100));
    const Graph graph(me.stream(), [&] { launch(*run, me.stream()); });
    me.meet();
    if (me.rank == 1) {
      WEFT_CUDA(cudaLaunchHostFunc(
          me.stream(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); },
          nullptr));
    }
    graph.replay(me.stream());
    if (me.rank == 1) {
      WEFT_OK(ncclCommDestroy(me.comm()));
      me.comms.clear();
    }
    expect_right(run->check(me.stream()));
  });
}

TEST_F(Graphs, CanBeCapturedInEveryMode) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    run_team(2, [mode](Rank& me) {
      const auto run = me.make(make_case(Operation::kReduceScatter, 4000));
      me.meet();
      // Ranks capture one after the other. A global capture forbids other threads to allocate, and
      // making a graph allocates.
      std::unique_ptr<Graph> graph;
      for (int turn = 0; turn < me.nranks; ++turn) {
        if (turn == me.rank)
          graph = std::make_unique<Graph>(
              me.stream(), [&] { launch(*run, me.stream()); }, mode);
        me.meet();
      }
      for (int i = 0; i < 10; ++i) {
        run->refill(me.stream());
        graph->replay(me.stream());
      }
      expect_right(run->check(me.stream()));
      me.meet();
    });
  }
}

// A capture forbids many CUDA calls to all threads of a process. It must not affect communicators
// that other threads make and use.
TEST_F(Graphs, DoNotKeepOtherThreadsFromMakingCommunicators) {
  constexpr int kRanks = 2;
  constexpr size_t kCount = 100000;
  const Pinned memory(kRanks * kCount * sizeof(float));
  auto* numbers = memory.data<float>();
  std::fill_n(numbers, kRanks * kCount, 1.F);
  const cudaStream_t captured = stream_number(kRanks);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    for (const int policy : {NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_ZERO}) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.CTAPolicy = policy;
      const ncclUniqueId id = new_unique_id();
      WEFT_CUDA(cudaStreamBeginCapture(captured, mode));
      run_threads(kRanks, [&](int rank) {
        ncclComm_t comm = nullptr;
        WEFT_OK(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config));
        float* mine = numbers + static_cast<size_t>(rank) * kCount;
        WEFT_OK(ncclAllReduce(mine, mine, kCount, ncclFloat32, ncclSum, comm,
                              stream_number(static_cast<size_t>(rank))));
        WEFT_OK(ncclCommDestroy(comm));
      });
      cudaGraph_t graph = nullptr;
      WEFT_CUDA(cudaStreamEndCapture(captured, &graph));
      WEFT_CUDA(cudaGraphDestroy(graph));
    }
  }
  for (const size_t at : {size_t{0}, kCount, 2 * kCount - 1}) EXPECT_EQ(numbers[at], 16.F);
}

TEST_F(Graphs, OfAGroupOfCallsHoldAllOfThem) {
  run_team(4, [](Rank& me) {
    std::vector<std::unique_ptr<DeviceCase>> runs;
    for (const Operation operation : all_operations())
      runs.push_back(me.make(make_case(operation, 2500)));
    const Graph graph(me.stream(), [&] {
      WEFT_OK(ncclGroupStart());
      for (const auto& run : runs) launch(*run, me.stream());
      WEFT_OK(ncclGroupEnd());
    });
    me.meet();
    for (int i = 0; i < 30; ++i) {
      for (const auto& run : runs) run->refill(me.stream());
      graph.replay(me.stream());
    }
    for (const auto& run : runs) expect_right(run->check(me.stream()));
    me.meet();
  });
}

}  // namespace
}  // namespace weft::test
