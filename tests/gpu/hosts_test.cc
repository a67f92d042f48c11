// Processes that share the GPU and act as several hosts.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/own_log.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/nic_bytes.h"
#include "tests/support/patterns.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// Every process is its own host, so that no memory is reached by load and store.
class TwoFakeHosts : public GpuProcesses {
 protected:
  static void play_on(int hosts, const char* scenario, int n, const std::string& argument,
                      const Environment& more = {}) {
    ProcessOptions options;
    options.limit = std::chrono::seconds(60);
    options.argument = argument;
    options.environment = [&](int process) {
      Environment all = separate_hosts(process % hosts);
      all.insert(more.begin(), more.end());
      return all;
    };
    run_ranks_as_processes(scenario, n, options);
  }
};

class FakeHosts : public TwoFakeHosts, public testing::WithParamInterface<int> {};

TEST_P(FakeHosts, OneForEachProcessGiveRightResults) {
  play_on(GetParam(), "device_conformance", GetParam(), "cudaMalloc");
}

TEST_P(FakeHosts, OneForEachProcessReplayGraphs) {
  play_on(GetParam(), "graphs_between_processes", GetParam(), "cudaMalloc");
}

INSTANTIATE_TEST_SUITE_P(Of, FakeHosts, testing::Values(2, 3, 4),
                         [](const auto& tested) { return std::to_string(tested.param) + "hosts"; });

TEST_F(TwoFakeHosts, OfTwoProcessesEachGiveRightResults) {
  play_on(2, "device_conformance", 4, "cudaMalloc");
}
TEST_F(TwoFakeHosts, OfTwoProcessesEachGiveRightResultsWithRegisteredMemory) {
  play_on(2, "device_conformance", 4, "registered");
}

// A network whose NICs take GPU memory and withhold what they write there until a flush.
const Environment& gpu_nics() {
  static const Environment all = {{"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so"},
                                  {"NCCL_NET", "tiny11"},
                                  {"NCCL_NET_GDR_LEVEL", "SYS"},
                                  {"WEFT_TEST_NICS", "mlx5_0"},
                                  {"WEFT_TEST_NIC_GPU", "1"}};
  return all;
}

TEST_F(TwoFakeHosts, LetNicsReachTheMemoryOfGpus) {
  play_on(2, "device_conformance", 4, "cudaMalloc", gpu_nics());
  play_on(2, "two_ranks_each", 2, "", gpu_nics());
}
// The plugin copies with CUDA, as no NIC does. A copy of the caller that waits for a replay must
// not be in a copy engine's queue before a copy that the replay waits for.
TEST_F(TwoFakeHosts, LetNicsReachTheMemoryOfGpusInGraphs) {
  Environment apart = gpu_nics();
  apart["WEFT_TEST_REPLAYS_APART"] = "1";
  play_on(2, "graphs_between_processes", 4, "registered", apart);
}

// All kinds of calls with one buffer: first through rings, then NICs read and write it. The
// argument: "none" if they must not.
WEFT_SCENARIO(buffers_of_nics) {
  {
    ProcessRank me(context);
    Arena arena(size_t{160} << 20, Origin::kCudaMalloc);
    for (int i = 0; i < 30; i++) {
      me.note("call " + std::to_string(i));
      arena.reset();
      Case gather = plain(Operation::kAllGather, (size_t{1} << 20) + static_cast<size_t>(i));
      gather.salt = static_cast<uint64_t>(i);
      me.run({gather}, arena);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    me.run(process_cases(me.nranks(), 60, 5), arena);
  }
  const std::string log = own_log();
  const bool reached = says(log,
                            "NICs sent [1-9][0-9]* messages from buffers of calls and "
                            "brought [1-9][0-9]* into them");
  EXPECT_EQ(reached, context.argument != "none") << log;
}

Environment logged(Environment all) {
  all["NCCL_DEBUG"] = "INFO";
  all["NCCL_DEBUG_SUBSYS"] = "REG";
  all["NCCL_DEBUG_FILE"] = "/tmp/weft-nics.%p";
  return all;
}

TEST_F(TwoFakeHosts, LetNicsReachBuffers) {
  for (const int n : {2, 4}) play_on(2, "buffers_of_nics", n, "", logged(gpu_nics()));
}
TEST_F(TwoFakeHosts, KeepBuffersFromNicsWhereSharingIsOff) {
  Environment all = logged(gpu_nics());
  all["WEFT_SHARE_BUFFERS"] = "0";
  play_on(2, "buffers_of_nics", 4, "none", all);
}
// Memory of calls is freed, and other memory comes to its address.
TEST_F(TwoFakeHosts, LetNicsReachBuffersThatAreExchanged) {
  play_on(2, "exchanged_buffers", 4, "", gpu_nics());
  play_on(2, "exchanged_buffers", 4, "");
}
TEST_F(TwoFakeHosts, OfTwoProcessesEachReplayGraphs) {
  play_on(2, "graphs_between_processes", 4, "registered");
}

// The argument: how many all_gathers, with a MiB of each rank.
WEFT_SCENARIO(counted_gathers) {
  constexpr size_t kCount = (size_t{1} << 20) / 4;
  ProcessRank me(context);
  Arena arena(size_t{64} << 20, Origin::kCudaMalloc, me.comm());
  for (int i = 0; i < std::stoi(context.argument); i++) {
    arena.reset();
    me.run({plain(Operation::kAllGather, kCount)}, arena);
  }
}

// Two ndv2. A block crosses the network once, and is passed on from GPU to GPU from there.
TEST_F(TwoFakeHosts, OfAnEmulatedMachineSendWhatTheBoundSays) {
  const auto bytes = [](const char* calls) {
    return nic_bytes("counted_gathers", calls, "ndv2x2", 16);
  };
  const double one = (bytes("5") - bytes("1")) / 4, bound = 16.0 * (1 << 20);
  std::printf("%.4f of the bound\n", one / bound);
  EXPECT_GE(one, bound);
  EXPECT_LE(one, 1.005 * bound);
}

// Without flushes results are wrong, so the test above can fail.
WEFT_SCENARIO(lost_flushes) {
  ProcessRank me(context);
  constexpr size_t kCount = size_t{1} << 20;
  Arena arena(size_t{128} << 20, Origin::kCudaMalloc, me.comm());
  int wrong = 0;
  for (uint64_t salt = 0; salt < 100 && wrong == 0; salt++) {
    Case c = plain(Operation::kAllGather, kCount);
    c.salt = salt;
    arena.reset();
    wrong +=
        run_device_case(c, me.rank(), me.nranks(), me.comm(), arena, me.stream()).empty() ? 0 : 1;
  }
  EXPECT_GT(wrong, 0) << "in 100 tries";
}

TEST_F(TwoFakeHosts, GetWrongDataWithoutFlushes) {
  Environment all = gpu_nics();
  all["WEFT_LOSE_FLUSHES"] = "1";
  play_on(2, "lost_flushes", 4, "", all);
}

// The mean of equal calls comes close to the exact sum if losses come with the next call. The
// argument: how close, and how far off a single call is at least.
WEFT_SCENARIO(compressed_calls) {
  ProcessRank me(context);
  std::istringstream limits(context.argument);
  double most_of_mean = 0, least_of_one = 0;
  limits >> most_of_mean >> least_of_one;
  constexpr size_t kCount = (size_t{1} << 19) + 33;
  constexpr int kCalls = 16;
  Arena arena(size_t{16} << 20, Origin::kCudaMalloc, me.comm());
  char* device = arena.take(kCount * sizeof(float));
  char* result = arena.take(kCount * sizeof(float));
  const auto value = [](int rank, size_t i) {
    return std::sin(static_cast<double>(i) * 0.37 + rank * 1.1);
  };
  std::vector<float> input(kCount), output(kCount);
  std::vector<double> exact(kCount), mean(kCount);
  for (size_t i = 0; i < kCount; i++) {
    input[i] = static_cast<float>(value(me.rank(), i));
    for (int r = 0; r < me.nranks(); r++) exact[i] += value(r, i);
  }
  upload(device, input.data(), kCount * sizeof(float), me.stream());
  const auto error_of = [&](const auto& found) {
    double wrong = 0, all = 0;
    for (size_t i = 0; i < kCount; i++) {
      wrong += std::pow(found[i] - exact[i], 2);
      all += std::pow(exact[i], 2);
    }
    return std::sqrt(wrong / all);
  };
  for (int call = 0; call < kCalls; call++) {
    me.note("call " + std::to_string(call));
    WEFT_OK(ncclAllReduce(device, result, kCount, ncclFloat32, ncclSum, me.comm(), me.stream()));
    download(output.data(), result, kCount * sizeof(float), me.stream());
    EXPECT_GE(error_of(output), least_of_one) << "it was not compressed";
    for (size_t i = 0; i < kCount; i++) mean[i] += output[i] / static_cast<double>(kCalls);
  }
  EXPECT_LE(error_of(mean), most_of_mean);
}

TEST_P(FakeHosts, CompressWithFeedback) {
  const int n = GetParam();
  play_on(n, "compressed_calls", n, "0.01 1e-3", {{"WEFT_COMPRESS", "all_reduce=int8"}});
  play_on(n, "compressed_calls", n, "0.02 0.03", {{"WEFT_COMPRESS", "all_reduce=int4:feedback"}});
  play_on(n, "compressed_calls", n, "0.2 0.2", {{"WEFT_COMPRESS", "all_reduce=onebit:feedback"}});
  play_on(n, "compressed_calls", n, "0.6 0.5",
          {{"WEFT_COMPRESS", "all_reduce=topk:density=0.1:feedback"}});
  play_on(n, "compressed_calls", n, "1e-6 0",
          {{"WEFT_COMPRESS", "auto"}});  // has no effect on GPUs
}

TEST_F(TwoFakeHosts, ExchangeSmallMessagesThroughSmallRings) {
  for (const char* plan : {"broadcast=one_round", "broadcast=ring"})
    play_on(3, "small_broadcasts", 3, "", {{"WEFT_PLAN", plan}, {"WEFT_RING_BYTES", "128K"}});
}

TEST_F(TwoFakeHosts, EndAWaitAtTheTimeout) {
  play_on(2, "one_stays_away", 2, "100000", {{"WEFT_TIMEOUT", "1"}});
}

TEST_F(TwoFakeHosts, OfTwoThreadsEachGiveRightResults) { play_on(2, "two_ranks_each", 2, ""); }

}  // namespace
}  // namespace weft::test
