// Streams of every kind, several communicators at once, and groups in which one thread calls for
// all ranks.
#include <gtest/gtest.h>

#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/team.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

class Streams : public GpuTest {};

// Keeps a stream busy for a while. A call that does not wait for the stream reads old data.
void delay(cudaStream_t stream) {
  WEFT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }, nullptr));
}

TEST_F(Streams, OrderCallsAfterWhatIsAlreadyOnThem) {
  run_team(3, [](Rank& me) {
    for (const size_t count : {size_t{100}, size_t{100000}}) {
      me.arena->reset();
      const auto run = me.make(make_case(Operation::kAllReduce, count));
      me.meet();
      WEFT_CUDA(cudaMemsetAsync(run->receive(), 1, run->receive_bytes(), me.stream()));
      delay(me.stream());
      run->refill(me.stream());
      WEFT_OK(run->launch(me.stream()));
      expect_right(run->check(me.stream()));
      me.meet();
    }
  });
}

TEST_F(Streams, OfOneCommunicatorMayChangeWithEveryCall) {
  run_team(4,
           [](Rank& me) {
             std::vector<std::unique_ptr<DeviceCase>> runs;
             Random random(3);
             for (size_t i = 0; i < 24; ++i)
               runs.push_back(me.make(
                   make_case(all_operations()[i % all_operations().size()],
                             random.below(2) == 0 ? random.below(200) : random.below(60000))));
             me.meet();
             for (int turn = 0; turn < 5; ++turn) {
               for (size_t i = 0; i < runs.size(); ++i) {
                 const cudaStream_t stream = me.streams[i % me.streams.size()];
                 runs[i]->refill(stream);
                 WEFT_OK(runs[i]->launch(stream));
               }
               for (size_t i = 0; i < runs.size(); ++i)
                 expect_right(runs[i]->check(me.streams[i % me.streams.size()]));
             }
           },
           {.streams = 4});
}

TEST_F(Streams, TiedByEventsPassResultsOn) {
  run_team(4,
           [](Rank& me) {
             const size_t count = 20000;
             auto* data = reinterpret_cast<uint64_t*>(me.arena->take(count * 8));
             auto* all = reinterpret_cast<uint64_t*>(me.arena->take(count * 8 * 4));
             const Pinned pinned(count * 8);  // copied while kernels wait
             auto* host = pinned.data<uint64_t>();
             for (size_t i = 0; i < count; ++i) host[i] = i + static_cast<uint64_t>(me.rank);
             cudaEvent_t ready = nullptr;
             WEFT_CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
             const auto hand_over = [&](cudaStream_t from, cudaStream_t to) {
               WEFT_CUDA(cudaEventRecord(ready, from));
               WEFT_CUDA(cudaStreamWaitEvent(to, ready, 0));
             };
             const cudaStream_t first = me.streams[0], second = me.streams[1];
             me.meet();
             for (int turn = 0; turn < 20; ++turn) {
               WEFT_CUDA(cudaMemcpyAsync(data, host, count * 8, cudaMemcpyHostToDevice, first));
               if (turn % 5 == 0) delay(first);
               WEFT_OK(ncclAllReduce(data, data, count, ncclUint64, ncclSum, me.comm(), first));
               hand_over(first, second);
               WEFT_OK(ncclAllGather(data, all, count, ncclUint64, me.comm(), second));
               hand_over(second, first);
             }
             std::vector<uint64_t> got(count * 4);
             download(got.data(), all, got.size() * 8, first);
             size_t wrong = 0;
             for (size_t i = 0; i < got.size(); ++i)
               wrong += got[i] != 4 * (i % count) + 6 ? 1u : 0u;
             EXPECT_EQ(wrong, 0u);
             WEFT_CUDA(cudaEventDestroy(ready));
           },
           {.streams = 2});
}

TEST_F(Streams, OfOneGroupMayDiffer) {
  run_team(3,
           [](Rank& me) {
             const auto a = me.make(make_case(Operation::kAllReduce, 700));
             const auto b = me.make(make_case(Operation::kBroadcast, 50000));
             me.meet();
             for (int turn = 0; turn < 10; ++turn) {
               a->refill(me.streams[0]);
               if (turn % 3 == 0) delay(me.streams[1]);
               b->refill(me.streams[1]);
               WEFT_OK(ncclGroupStart());
               WEFT_OK(a->launch(me.streams[0]));
               WEFT_OK(b->launch(me.streams[1]));
               WEFT_OK(ncclGroupEnd());
               expect_right(a->check(me.streams[0]));
               expect_right(b->check(me.streams[1]));
             }
           },
           {.streams = 2});
}

// The name cudaStreamPerThread means another stream in each thread.
TEST_F(Streams, PerThreadDefaultServesRanksAsThreads) {
  run_team(4, [](Rank& me) {
    me.streams = {cudaStreamPerThread};
    // The first use creates the stream. It must not happen while a kernel waits.
    WEFT_CUDA(cudaMemsetAsync(me.arena->take(1), 0, 1, cudaStreamPerThread));
    WEFT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    me.meet();
    for (const Operation operation : all_operations())
      for (const size_t count : {size_t{33}, size_t{40000}}) me.run(make_case(operation, count));
    me.streams = {stream_number(static_cast<size_t>(me.rank)), cudaStreamPerThread};
    me.run(make_case(Operation::kAllReduce, 1000));
  });
}

// Two threads call for a rank in turn, with one stream name that means two streams. A library that
// treats them as one stream lets rank 0's second call overtake its first. Rank 1 detects that.
TEST_F(Streams, PerThreadDefaultOfTwoThreadsKeepTheOrderOfTheCalls) {
  run_team(2, [](Rank& me) {
    const auto first = me.make(make_case(Operation::kAllReduce, 2000));
    const auto second = me.make(make_case(Operation::kAllReduce, 3000));
    WEFT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));  // its first use creates it
    me.meet();
    if (me.rank == 0) delay(cudaStreamPerThread);
    WEFT_OK(first->launch(cudaStreamPerThread));
    std::thread([&] {
      WEFT_OK(second->launch(cudaStreamPerThread));
      expect_right(second->check(cudaStreamPerThread));
    }).join();
    expect_right(first->check(cudaStreamPerThread));
    me.meet();
  });
}

// CUDA reuses the handle of a destroyed stream, while work of the old stream may still wait.
TEST_F(Streams, MadeAnewUnderAnOldHandleKeepTheOrderOfTheCalls) {
  constexpr int kRanks = 2, kTries = 20;
  run_team(kRanks, [](Rank& me) {
    const auto first = me.make(make_case(Operation::kAllReduce, 2000));
    const auto second = me.make(make_case(Operation::kAllReduce, 3000));
    int reused = 0;
    for (int turn = 0; turn < 3; ++turn) {
      cudaStream_t old = nullptr;
      WEFT_CUDA(cudaStreamCreateWithFlags(&old, cudaStreamNonBlocking));
      first->refill(me.stream());
      second->refill(me.stream());
      WEFT_CUDA(cudaStreamSynchronize(me.stream()));
      me.meet();
      if (me.rank == 0) delay(old);
      WEFT_OK(first->launch(old));
      WEFT_CUDA(cudaStreamDestroy(old));
      std::vector<cudaStream_t> made;
      while (made.size() < kTries && (made.empty() || made.back() != old))
        WEFT_CUDA(cudaStreamCreateWithFlags(&made.emplace_back(), cudaStreamNonBlocking));
      reused += made.back() == old ? 1 : 0;
      WEFT_OK(second->launch(made.back()));
      expect_right(second->check(made.back()));
      expect_right(first->check(made.back()));
      me.meet();
      for (const cudaStream_t stream : made) WEFT_CUDA(cudaStreamDestroy(stream));
    }
    if (me.rank == 0) std::printf("a handle came back in %d of 3 turns\n", reused);
  });
}

TEST_F(Streams, LegacyDefaultServesARankAlone) {
  for (const cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    run_team(1, [stream](Rank& me) {
      me.streams = {stream};
      for (const Operation operation : all_operations()) me.run(make_case(operation, 4097));
    });
  }
}

// Blocking streams synchronize with the legacy default stream.
TEST_F(Streams, MadeBlockingServeToo) {
  std::vector<cudaStream_t> blocking(3);
  for (cudaStream_t& stream : blocking) WEFT_CUDA(cudaStreamCreate(&stream));
  run_team(3, [&](Rank& me) {
    me.streams = {blocking[static_cast<size_t>(me.rank)]};
    for (const Operation operation : all_operations()) me.run(make_case(operation, 3000));
  });
  for (const cudaStream_t stream : blocking) WEFT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(Streams, OfDifferentPrioritiesServeToo) {
  int least = 0, greatest = 0;
  WEFT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  std::vector<cudaStream_t> made(2);
  WEFT_CUDA(cudaStreamCreateWithPriority(&made[0], cudaStreamNonBlocking, least));
  WEFT_CUDA(cudaStreamCreateWithPriority(&made[1], cudaStreamNonBlocking, greatest));
  run_team(2, [&](Rank& me) {
    me.streams = {made[static_cast<size_t>(me.rank)]};
    for (const Operation operation : all_operations()) me.run(make_case(operation, 100000));
  });
  for (const cudaStream_t stream : made) WEFT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(Streams, OfSeveralCommunicatorsRunAtOnce) {
  run_team(4,
           [](Rank& me) {
             std::vector<std::unique_ptr<DeviceCase>> runs;
             for (size_t c = 0; c < me.comms.size(); ++c)
               for (const Operation operation : {Operation::kAllReduce, Operation::kAlltoAll})
                 runs.push_back(std::make_unique<DeviceCase>(make_case(operation, 1 + 40000 * c),
                                                             me.rank, me.nranks, me.comms[c],
                                                             *me.arena, me.stream()));
             me.meet();
             for (int turn = 0; turn < 20; ++turn)
               for (size_t i = 0; i < runs.size(); ++i) {
                 runs[i]->refill(me.streams[i / 2]);
                 WEFT_OK(runs[i]->launch(me.streams[i / 2]));
               }
             for (size_t i = 0; i < runs.size(); ++i)
               expect_right(runs[i]->check(me.streams[i / 2]));
           },
           {.comms = 3, .streams = 3});
}

TEST_F(Streams, CallsLeaveTheDeviceAndTheLastErrorOfTheCallerAlone) {
  int devices = 0;
  WEFT_CUDA(cudaGetDeviceCount(&devices));
  run_team(2, [devices](Rank& me) {
    const auto run = me.make(make_case(Operation::kAllReduce, 100));
    me.meet();
    WEFT_CUDA(cudaSetDevice(devices - 1));
    WEFT_OK(run->launch(me.stream()));
    int device = -1;
    WEFT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, devices - 1);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    WEFT_CUDA(cudaSetDevice(0));
    expect_right(run->check(me.stream()));
    // This thread never chose a device.
    run->refill(me.stream());
    std::thread([&] { WEFT_OK(run->launch(me.stream())); }).join();
    expect_right(run->check(me.stream()));
  });
}

// One thread has all ranks, as ncclCommInitAll makes them.
class OneThread : public GpuTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    comms_ = std::make_unique<CommSet>(GetParam());
    arena_ = std::make_unique<Arena>(size_t{256} << 20, Origin::kCudaMalloc);
  }
  void TearDown() override {
    runs_.clear();
    for (int r = 0; comms_ && r < n(); ++r) WEFT_OK(ncclCommDestroy(comms_->take(r)));
    arena_.reset();
    GpuTest::TearDown();
  }
  int n() const { return GetParam(); }
  static cudaStream_t stream(int rank) { return stream_number(static_cast<size_t>(rank)); }
  void add(const Case& c) {
    for (int r = 0; r < n(); ++r)
      runs_.push_back(std::make_unique<DeviceCase>(c, r, n(), (*comms_)[r], *arena_, stream(r)));
  }
  // Launches all added cases of all ranks in one group.
  void launch_all() {
    WEFT_OK(ncclGroupStart());
    for (size_t i = 0; i < runs_.size(); ++i)
      WEFT_OK(runs_[i]->launch(stream(static_cast<int>(i) % n())));
    WEFT_OK(ncclGroupEnd());
  }
  void refill_all() {
    for (size_t i = 0; i < runs_.size(); ++i) runs_[i]->refill(stream(static_cast<int>(i) % n()));
  }
  void check_all() {
    for (size_t i = 0; i < runs_.size(); ++i)
      expect_right(runs_[i]->check(stream(static_cast<int>(i) % n())));
  }
  void forget() {
    runs_.clear();
    arena_->reset();
  }
  std::unique_ptr<CommSet> comms_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<DeviceCase>> runs_;
};

TEST_P(OneThread, DrivesAllRanksInGroups) {
  for (const Operation operation : all_operations()) {
    for (const size_t count : {size_t{1}, size_t{3000}, size_t{150000}}) {
      forget();
      add(make_case(operation, count));
      for (int turn = 0; turn < 10; ++turn) {
        refill_all();
        launch_all();
      }
      check_all();
    }
  }
}

TEST_P(OneThread, DrivesSeveralCollectivesOfAllRanksInOneGroup) {
  for (const Operation operation : all_operations()) add(make_case(operation, 5000));
  for (int turn = 0; turn < 10; ++turn) {
    refill_all();
    launch_all();
  }
  check_all();
}

TEST_P(OneThread, CapturesAGraphPerRankAndReplaysThem) {
  add(make_case(Operation::kAllReduce, 20000));
  std::vector<cudaGraphExec_t> instances(static_cast<size_t>(n()));
  std::vector<cudaGraph_t> graphs(static_cast<size_t>(n()));
  for (int r = 0; r < n(); ++r)
    WEFT_CUDA(cudaStreamBeginCapture(stream(r), cudaStreamCaptureModeThreadLocal));
  launch_all();
  for (int r = 0; r < n(); ++r)
    WEFT_CUDA(cudaStreamEndCapture(stream(r), &graphs[static_cast<size_t>(r)]));
  for (int r = 0; r < n(); ++r) {
    cudaGraphExec_t& instance = instances[static_cast<size_t>(r)];
    WEFT_CUDA(cudaGraphInstantiate(&instance, graphs[static_cast<size_t>(r)], 0));
    WEFT_CUDA(cudaGraphUpload(instance, stream(r)));
    WEFT_CUDA(cudaGraphDestroy(graphs[static_cast<size_t>(r)]));
  }
  WEFT_CUDA(cudaDeviceSynchronize());
  for (int turn = 0; turn < 50; ++turn) {
    refill_all();
    for (int r = 0; r < n(); ++r)
      WEFT_CUDA(cudaGraphLaunch(instances[static_cast<size_t>(r)], stream(r)));
  }
  check_all();
  for (const cudaGraphExec_t instance : instances) WEFT_CUDA(cudaGraphExecDestroy(instance));
}

INSTANTIATE_TEST_SUITE_P(Of, OneThread, testing::Values(2, 4, 8),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

}  // namespace
}  // namespace weft::test
