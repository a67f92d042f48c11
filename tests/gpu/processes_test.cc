// Ranks as processes that share the GPU through MPS, with memory of every origin.
#include "tests/support/processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/waiting.h"
#include "tests/support/patterns.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using std::chrono::seconds;

constexpr size_t kArena = size_t{128} << 20;

Origin origin_named(const std::string& name) {
  for (const Origin origin : all_origins())
    if (name == name_of(origin)) return origin;
  throw std::invalid_argument("no origin " + name);
}

std::string machine(const char* file) {
  return std::string(WEFT_TEST_DATA) + "/machines/nccl/" + file;
}

// The argument: an origin, "all" for each in turn, or "mixed" for a different one on every rank.
WEFT_SCENARIO(device_conformance) {
  ProcessRank me(context);
  const auto run = [&](Origin origin, int samples) {
    Arena arena(kArena, origin, me.comm());
    me.run(process_cases(me.nranks(), samples, 11), arena);
    me.meet(arena);
  };
  if (context.argument == "all") {
    for (const Origin origin : all_origins()) run(origin, 10);
  } else if (context.argument == "mixed") {
    // All origins but windows, because all ranks register a window together.
    const Origin each[] = {Origin::kRegistered, Origin::kCudaMalloc, Origin::kVirtualRegistered,
                           Origin::kNcclMemAlloc, Origin::kVirtualPrivate};
    run(each[me.rank() % 5], 30);
  } else {
    run(origin_named(context.argument), 30);
  }
}

struct Place {
  int processes;
  std::string origin;
};
class GpuMemory : public GpuProcesses, public testing::WithParamInterface<Place> {};

TEST_P(GpuMemory, GivesRightResultsBetweenProcesses) {
  play("device_conformance", GetParam().processes, GetParam().origin);
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (const int n : {2, 4}) {
    for (const Origin origin : all_origins()) all.push_back({n, name_of(origin)});
    all.push_back({n, "mixed"});
  }
  for (const int n : {3, 5, 7}) all.push_back({n, "all"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Of, GpuMemory, testing::ValuesIn(places()), [](const auto& tested) {
  return std::to_string(tested.param.processes) + "processes_" + tested.param.origin;
});

TEST_F(GpuProcesses, WithOneHardwareQueueGiveRightResults) {
  play("device_conformance", 2, "cudaMalloc", {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}});
}

// A small scratch buffer splits every large call into pieces.
TEST_F(GpuProcesses, WithASmallStageGiveRightResults) {
  play("device_conformance", 3, "cudaMalloc", {{"WEFT_SCRATCH_BYTES", "1M"}});
}

TEST_F(GpuProcesses, WithLazyLoadingOffGiveRightResults) {
  play("device_conformance", 2, "cudaMalloc", {{"CUDA_MODULE_LOADING", "EAGER"}});
}

WEFT_SCENARIO(default_streams) {
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  cudaStream_t blocking = nullptr;
  WEFT_CUDA(cudaStreamCreate(&blocking));
  std::vector<Case> cases;
  for (const Operation operation : all_operations())
    for (const size_t count : {size_t{10}, size_t{90000}}) cases.push_back(plain(operation, count));
  for (const cudaStream_t stream :
       {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread, blocking}) {
    me.use_stream(stream);
    me.run(cases, arena);
  }
  me.meet(arena);
  WEFT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(GpuProcesses, MayUseDefaultStreams) { play("default_streams", 3); }

// WEFT_TEST_REPLAYS_APART: the stream holds one replay at a time.
WEFT_SCENARIO(graphs_between_processes) {
  ProcessRank me(context);
  const bool apart = std::getenv("WEFT_TEST_REPLAYS_APART") != nullptr;
  Arena arena(kArena, origin_named(context.argument), me.comm());
  for (const Operation operation : all_operations()) {
    for (const size_t count : {size_t{300}, size_t{150000}}) {
      const Case c = plain(operation, count);
      me.note("graph of " + to_string(c, me.nranks()));
      arena.reset();
      DeviceCase run(c, me.rank(), me.nranks(), me.comm(), arena, me.stream());
      const Graph graph(me.stream(), [&] { WEFT_OK(run.launch(me.stream())); });
      for (int i = 0; i < 40; ++i) {
        run.refill(me.stream());
        graph.replay(me.stream());
        if (apart) WEFT_CUDA(cudaStreamSynchronize(me.stream()));
      }
      const std::string bad = run.check(me.stream());
      EXPECT_EQ(bad, "") << to_string(c, me.nranks());
    }
  }
  me.meet(arena);
}

TEST_F(GpuProcesses, ReplayGraphsWithPlainBuffers) {
  play("graphs_between_processes", 3, "cudaMalloc");
}
TEST_F(GpuProcesses, ReplayGraphsWithRegisteredBuffers) {
  play("graphs_between_processes", 3, "registered");
}
TEST_F(GpuProcesses, ReplayGraphsThatAreTheFirstToUseTheirMemory) {
  play("graphs_between_processes", 3, "ncclMemAlloc");
}

// Memory is freed and allocated again. The same address often means other memory the next time.
WEFT_SCENARIO(memory_that_changes) {
  ProcessRank me(context);
  Arena still(size_t{1} << 20, Origin::kCudaMalloc);
  const Origin origin = origin_named(context.argument);
  Random random(9);
  size_t free_early = 0, free_late = 0, total = 0;
  constexpr int kTurns = 40;
  for (int turn = 0; turn < kTurns; ++turn) {
    me.note("turn " + std::to_string(turn) + " with " + context.argument);
    const size_t megabytes = 12 + random.below(24);
    {
      Arena arena(megabytes << 20, origin, me.comm());
      me.run({plain(Operation::kAllReduce, 10 + random.below(300000)),
              plain(Operation::kAllGather, 10 + random.below(60000)),
              plain(Operation::kSendRecv, 10 + random.below(300000))},
             arena);
      me.meet(still);  // no rank reads it any more when it is freed
    }
    me.meet(still);
    if (turn == kTurns / 4) WEFT_CUDA(cudaMemGetInfo(&free_early, &total));
    me.meet(still);
  }
  WEFT_CUDA(cudaMemGetInfo(&free_late, &total));
  me.meet(still);
  // 30 rounds of 24 MiB on average: a leak would be 720 MiB for every rank.
  EXPECT_LT(free_early > free_late ? free_early - free_late : 0, size_t{128} << 20)
      << "device memory that is gone";
}

class ChangingMemory : public GpuProcesses, public testing::WithParamInterface<Origin> {};

TEST_P(ChangingMemory, GivesRightResultsBetweenProcesses) {
  play("memory_that_changes", 3, name_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Of, ChangingMemory, testing::ValuesIn(all_origins()),
                         [](const auto& tested) { return name_of(tested.param); });

// Registers a part in the middle of an allocation many times, while other parts stay registered.
WEFT_SCENARIO(registrations) {
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  void* large = nullptr;
  WEFT_OK(ncclCommRegister(me.comm(), arena.data() + (size_t{64} << 20), size_t{32} << 20, &large));
  for (int turn = 0; turn < 200; ++turn) {
    const size_t at = static_cast<size_t>(turn) * 4096 + 512;
    const size_t bytes = 4096 + static_cast<size_t>(turn) * 1000;
    void *one = nullptr, *two = nullptr;
    WEFT_OK(ncclCommRegister(me.comm(), arena.data() + at, bytes, &one));
    WEFT_OK(ncclCommRegister(me.comm(), arena.data() + at, bytes, &two));  // twice is allowed
    if (turn % 20 == 0) me.run({plain(Operation::kAllReduce, 20000)}, arena);
    WEFT_OK(ncclCommDeregister(me.comm(), one));
    if (turn % 20 == 0) me.run({plain(Operation::kAllGather, 5000)}, arena);
    WEFT_OK(ncclCommDeregister(me.comm(), two));
  }
  me.meet(arena);
  WEFT_OK(ncclCommDeregister(me.comm(), large));
  me.run({plain(Operation::kAllReduce, 20000)}, arena);
  me.meet(arena);
}

TEST_F(GpuProcesses, MayRegisterAndDeregisterManyTimes) { play("registrations", 2); }

// Rank 1 dies while the others wait for it. The argument is the count.
WEFT_SCENARIO(one_is_killed) {
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  me.run({plain(Operation::kAllReduce, 1000), plain(Operation::kAllReduce, 100000)}, arena);
  if (me.rank() == 1) {
    WEFT_CUDA(cudaDeviceSynchronize());
    raise(SIGKILL);
  }
  me.note("waiting for the dead");
  const auto start = std::chrono::steady_clock::now();
  ncclResult_t error = ncclAllReduce(arena.data(), arena.data(), std::stoul(context.argument),
                                     ncclFloat32, ncclSum, me.comm(), me.stream());
  if (error == ncclSuccess) error = async_error_within(me.comm(), seconds(10));
  EXPECT_NE(error, ncclSuccess) << "nobody noticed";
  EXPECT_TRUE(says(ncclGetLastError(me.comm()), "(rank|peer) 1")) << ncclGetLastError(me.comm());
  EXPECT_EQ(finish_within(me.stream(), seconds(5)), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  expect_abort_succeeds(me.take());
}

class KilledRank : public GpuProcesses {
 protected:
  static void expect_noticed(const std::string& count,
                             const std::function<Environment(int)>& environment = nullptr) {
    ProcessOptions options;
    options.limit = seconds(40);
    options.argument = count;
    options.environment = environment;
    const std::vector<ProcessResult> results = run_processes("one_is_killed", 3, options);
    for (size_t r = 0; r < results.size(); ++r) {
      if (r == 1) {
        EXPECT_EQ(results[r].signal, SIGKILL);
      } else {
        EXPECT_TRUE(results[r].exit_code == 0 && !results[r].hung) << "rank " << r << ":\n"
                                                                   << results[r].output;
      }
    }
  }
};

// Rank 0 waits for rank 1, and rank 2 dies.
WEFT_SCENARIO(another_is_killed) {
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  me.run({plain(Operation::kAllReduce, 1000)}, arena);
  if (me.rank() == 0) {
    WEFT_OK(ncclAllReduce(arena.data(), arena.data(), 1000, ncclFloat32, ncclSum, me.comm(),
                          me.stream()));
  }
  if (me.rank() == 2) {
    WEFT_CUDA(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    raise(SIGKILL);
  }
  EXPECT_NE(async_error_within(me.comm(), seconds(10)), ncclSuccess);
  std::cout << "record: " << ncclGetLastError(me.comm()) << std::endl;
  EXPECT_EQ(finish_within(me.stream(), seconds(5)), "");
  expect_abort_succeeds(me.take());
}

std::string record_in(const std::string& output) {
  const size_t at = output.find("record: ");
  return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
}

TEST_F(KilledRank, IsToldTogetherWithWhatOthersWaitFor) {
  ProcessOptions options;
  options.limit = seconds(40);
  const std::vector<ProcessResult> results = run_processes("another_is_killed", 3, options);
  for (const size_t r : {0, 1}) {
    EXPECT_EQ(results[r].exit_code, 0) << results[r].output;
    EXPECT_TRUE(says(record_in(results[r].output), "its GPU waits for peer [12] since .*operation"))
        << results[r].output;
  }
  EXPECT_EQ(record_in(results[0].output), record_in(results[1].output));
}

TEST_F(KilledRank, IsNoticedInASmallCall) { expect_noticed("100"); }
TEST_F(KilledRank, IsNoticedInALargeCall) { expect_noticed("4000000"); }
TEST_F(KilledRank, IsNoticedByOtherHosts) { expect_noticed("100000", separate_hosts); }

// Rank 1 is alive but does not call. The argument is the count.
WEFT_SCENARIO(one_stays_away) {
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  me.run({plain(Operation::kAllReduce, 1000)}, arena);
  if (me.rank() == 1) {
    std::this_thread::sleep_for(seconds(4));
  } else {
    WEFT_OK(ncclAllReduce(arena.data(), arena.data(), std::stoul(context.argument), ncclFloat32,
                          ncclSum, me.comm(), me.stream()));
    EXPECT_NE(async_error_within(me.comm(), seconds(6)), ncclSuccess);
    const std::string text = ncclGetLastError(me.comm());
    EXPECT_TRUE(says(text, "peer 1.*WEFT_TIMEOUT|WEFT_TIMEOUT.*peer 1")) << text;
    EXPECT_EQ(finish_within(me.stream(), seconds(5)), "");
  }
  expect_abort_succeeds(me.take());
}

TEST_F(GpuProcesses, EndAWaitAtTheTimeout) {
  for (const char* count : {"100", "1000000"})
    play("one_stays_away", 2, count, {{"WEFT_TIMEOUT", "1"}});
}

TEST_F(GpuProcesses, WithoutPeerAccessGoThroughHostMemory) {
  for (const char* reason : {"NCCL_P2P_DISABLE", "WEFT_LOSE_PROBES"})
    play("device_conformance", 3, "cudaMalloc", {{reason, "1"}});
  play("graphs_between_processes", 2, "cudaMalloc", {{"NCCL_P2P_DISABLE", "1"}});
}

// As if the driver had refused pairs of GPUs: some pairs of every GPU, or only one pair.
TEST_F(GpuProcesses, OfEmulatedMachinesGiveRightResults) {
  play("device_conformance", 8, "cudaMalloc", {{"WEFT_TOPO", "dgx1v"}});
  play("device_conformance", 4, "registered", {{"WEFT_TOPO", machine("mesh_4x.xml")}});
  play("device_conformance", 4, "cudaMalloc", {{"WEFT_TOPO", machine("mesh_4x_cut.xml")}});
  play("graphs_between_processes", 4, "cudaMalloc", {{"WEFT_TOPO", machine("mesh_4x_cut.xml")}});
}

// With GPUs that reach each other's memory, and with GPUs that do not.
TEST_F(GpuProcesses, LetCpuNodesReduce) {
  for (const char* disabled : {"0", "1"})
    play("device_conformance", 3, "cudaMalloc",
         {{"NCCL_P2P_DISABLE", disabled},
          {"WEFT_PLAN", "all_reduce=cpu_reduce,reduce=cpu_pair,reduce_scatter=cpu_pair"}});
  play("graphs_between_processes", 2, "cudaMalloc", {{"WEFT_PLAN", "all_reduce=cpu_reduce"}});
}

// Thousands of small messages, so that FIFOs wrap often. Ranks pass only the buffers they must.
WEFT_SCENARIO(small_broadcasts) {
  constexpr size_t kMost = 24000;
  ProcessRank me(context);
  Arena arena(kArena, Origin::kCudaMalloc);
  char *in = arena.take(kMost), *out = arena.take(kMost);
  std::vector<char> seen(kMost);
  for (int i = 0; i < 1200; i++) {
    const size_t bytes = static_cast<size_t>(i) * 331 % kMost + 1;
    const int root = i % me.nranks(), value = i % 127;
    if (me.rank() == root) WEFT_CUDA(cudaMemsetAsync(in, value, bytes, me.stream()));
    WEFT_CUDA(cudaMemsetAsync(out, 127, kMost, me.stream()));
    WEFT_OK(ncclBroadcast(me.rank() == root ? in : nullptr, out, bytes, ncclInt8, root, me.comm(),
                          me.stream()));
    if (i % 10 != 0) continue;
    WEFT_CUDA(cudaMemcpyAsync(seen.data(), out, kMost, cudaMemcpyDeviceToHost, me.stream()));
    WEFT_CUDA(cudaStreamSynchronize(me.stream()));
    for (size_t b = 0; b < kMost; b++)
      if (seen[b] != (b < bytes ? value : 127)) {
        ADD_FAILURE() << "call " << i << ": byte " << b << " of " << bytes << " is " << +seen[b];
        return;
      }
  }
  me.meet(arena);
}

TEST_F(GpuProcesses, ExchangeSmallMessagesThroughSmallRings) {
  for (const char* plan : {"broadcast=one_round", "broadcast=ring", "broadcast=direct"})
    play("small_broadcasts", 3, "",
         {{"NCCL_P2P_DISABLE", "1"}, {"WEFT_PLAN", plan}, {"WEFT_RING_BYTES", "128K"}});
}

// Every process drives two ranks, each with a thread.
WEFT_SCENARIO(two_ranks_each) {
  const int n = 2 * context.nranks;
  WEFT_CUDA(cudaSetDevice(0));
  stream_number(0);
  Arena arenas[2] = {{kArena, Origin::kCudaMalloc}, {kArena, Origin::kCudaMalloc}};
  run_threads(
      2,
      [&](int thread) {
        const int rank = 2 * context.rank + thread;
        const cudaStream_t stream = stream_number(static_cast<size_t>(thread));
        ncclComm_t comm = nullptr;
        WEFT_OK(ncclCommInitRank(&comm, n, context.ids.at(0), rank));
        int failures = 0;
        for (const Case& c : process_cases(n, 10, 5)) {
          arenas[thread].reset();
          const std::string bad = run_device_case(c, rank, n, comm, arenas[thread], stream);
          if (!bad.empty() && ++failures <= 3) ADD_FAILURE() << bad;
        }
        WEFT_CUDA(cudaStreamSynchronize(stream));
        WEFT_OK(ncclCommDestroy(comm));
      },
      seconds(30));
}

TEST_F(GpuProcesses, OfTwoThreadsEachGiveRightResults) { play("two_ranks_each", 2); }

}  // namespace
}  // namespace weft::test
