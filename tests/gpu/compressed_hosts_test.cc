// Processes that share the GPU and act as several hosts, with compression.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include "tests/gpu/support/fake_hosts.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

class CompressedHosts : public TwoFakeHosts {};
class CompressedHostsOf : public TwoFakeHosts, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Each, CompressedHostsOf, testing::Values(2, 3, 4),
                         [](const auto& tested) { return std::to_string(tested.param) + "hosts"; });

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

TEST_P(CompressedHostsOf, CompressWithFeedback) {
  const int n = GetParam();
  play_on(n, "compressed_calls", n, "0.01 1e-3", {{"WEFT_COMPRESS", "all_reduce=int8"}});
  play_on(n, "compressed_calls", n, "0.02 0.03", {{"WEFT_COMPRESS", "all_reduce=int4:feedback"}});
  play_on(n, "compressed_calls", n, "0.2 0.2", {{"WEFT_COMPRESS", "all_reduce=onebit:feedback"}});
  play_on(n, "compressed_calls", n, "0.6 0.5",
          {{"WEFT_COMPRESS", "all_reduce=topk:density=0.1:feedback"}});
}

// An all_reduce that travels as int8, from one buffer to another.
class CodedSum {
 public:
  static constexpr size_t kCount = (size_t{1} << 18) + 77;  // more than 1 MiB
  CodedSum(int rank, int nranks, Arena& arena, cudaStream_t stream)
      : from_(arena.take(kBytes)), to_(arena.take(kBytes)), exact_(kCount) {
    std::vector<float> input(kCount);
    for (size_t i = 0; i < kCount; i++) {
      input[i] = value(rank, i);
      for (int r = 0; r < nranks; r++) exact_[i] += double{value(r, i)};
    }
    upload(from_, input.data(), kBytes, stream);
  }
  void forget(cudaStream_t stream) const { WEFT_CUDA(cudaMemsetAsync(to_, 0xff, kBytes, stream)); }
  void launch(ncclComm_t comm, cudaStream_t stream) const {
    WEFT_OK(ncclAllReduce(from_, to_, kCount, ncclFloat32, ncclSum, comm, stream));
  }
  // Of the result, in L2. Not a number where nothing was written. It waits before it copies: a copy
  // that waits for a graph could be in the way of copies by the test's network.
  double error(cudaStream_t stream) const {
    WEFT_CUDA(cudaStreamSynchronize(stream));
    std::vector<float> found(kCount);
    download(found.data(), to_, kBytes, stream);
    double wrong = 0, all = 0;
    for (size_t i = 0; i < kCount; i++) {
      wrong += std::pow(double{found[i]} - exact_[i], 2);
      all += std::pow(exact_[i], 2);
    }
    return std::sqrt(wrong / all);
  }

 private:
  static constexpr size_t kBytes = kCount * sizeof(float);
  static float value(int rank, size_t i) {
    return static_cast<float>(std::sin(static_cast<double>(i) * 0.37 + rank * 1.1));
  }
  char *const from_, *const to_;
  std::vector<double> exact_;
};

constexpr double kMostLoss = 0.01, kLeastLoss = 1e-4;  // of int8

uint64_t compressed_calls(ncclComm_t comm) {
  weftCompression_t report{};
  WEFT_OK(weftCompressionReport(comm, &report));
  return report.calls;
}

// Plain calls go through FIFOs in host memory, and a compressed one before and after each as lanes:
// one by one, without a wait between them, in groups and in graphs.
WEFT_SCENARIO(plain_and_coded_in_turns) {
  ProcessRank me(context);
  const cudaStream_t stream = me.stream();
  Arena arena(size_t{64} << 20, Origin::kCudaMalloc, me.comm());
  arena.take(1);  // meet() uses it
  const CodedSum coded(me.rank(), me.nranks(), arena, stream);
  std::vector<std::unique_ptr<DeviceCase>> cases;
  const auto add = [&](Case c) {
    c.root = me.nranks() - 1;
    cases.push_back(
        std::make_unique<DeviceCase>(c, me.rank(), me.nranks(), me.comm(), arena, stream));
  };
  for (const Operation operation : all_operations()) {
    add(plain(operation, 1000));
    if (operation != Operation::kAllReduce) add(plain(operation, 90000));
  }
  Case whole = plain(Operation::kAllReduce, 400000);
  whole.type = ncclInt32;  // large, and not compressed
  add(whole);
  const auto expect_right = [&](const char* how) {
    const double loss = coded.error(stream);
    EXPECT_GE(loss, kLeastLoss) << how << ": it was not compressed";
    EXPECT_LE(loss, kMostLoss) << how;
    for (const auto& run : cases)
      EXPECT_EQ(run->check(stream), "") << how << ": " << to_string(run->what(), me.nranks());
  };
  const auto start_afresh = [&](uint64_t salt) {
    coded.forget(stream);
    for (const auto& run : cases) run->fill(salt, stream);
  };
  me.note("one by one");
  start_afresh(1);
  for (const auto& run : cases) {
    coded.launch(me.comm(), stream);
    EXPECT_LE(coded.error(stream), kMostLoss);
    WEFT_OK(run->launch(stream));
    WEFT_CUDA(cudaStreamSynchronize(stream));
  }
  expect_right("one by one");
  const auto all_in_turns = [&] {
    for (const auto& run : cases) {
      coded.launch(me.comm(), stream);
      WEFT_OK(run->launch(stream));
    }
    coded.launch(me.comm(), stream);
  };
  me.note("without a wait");
  start_afresh(2);
  all_in_turns();
  expect_right("without a wait");
  me.note("in a group");
  start_afresh(3);
  WEFT_OK(ncclGroupStart());
  all_in_turns();
  WEFT_OK(ncclGroupEnd());
  expect_right("in a group");
  me.note("captured");
  const Graph graph(stream, all_in_turns);
  me.meet(arena);
  for (uint64_t replay = 0; replay < 5; replay++) {
    me.note("replay " + std::to_string(replay));
    start_afresh(4 + replay);
    graph.replay(stream);
    expect_right("in a graph");
    start_afresh(40 + replay);
    all_in_turns();
    expect_right("between replays");
  }
}

TEST_P(CompressedHostsOf, CompressSomeCallsAndNotOthers) {
  play_on(GetParam(), "plain_and_coded_in_turns", GetParam(), "",
          {{"WEFT_COMPRESS", "all_reduce=int8"}});
}
TEST_F(CompressedHosts, OfTwoProcessesEachCompressSomeCallsAndNotOthers) {
  play_on(2, "plain_and_coded_in_turns", 4, "", {{"WEFT_COMPRESS", "all_reduce=int8"}});
}
TEST_F(CompressedHosts, CompressSomeCallsAndNotOthersWithNicsThatReachGpus) {
  Environment all = gpu_nics();
  all["WEFT_COMPRESS"] = "all_reduce=int8";
  play_on(2, "plain_and_coded_in_turns", 2, "", all);
}
// Waits in FIFOs, and in lanes.
TEST_F(CompressedHosts, EndAWaitAtTheTimeout) {
  for (const char* count : {"1000", "400000"})
    play_on(2, "one_stays_away", 2, count,
            {{"WEFT_TIMEOUT", "1"}, {"WEFT_COMPRESS", "all_reduce=int8"}});
}

WEFT_SCENARIO(compressed_after_a_suspension) {
  ProcessRank me(context);
  Arena arena(size_t{16} << 20, Origin::kCudaMalloc);
  const CodedSum coded(me.rank(), me.nranks(), arena, me.stream());
  for (int turn = 0; turn < 2; turn++) {
    me.note("turn " + std::to_string(turn));
    coded.forget(me.stream());
    coded.launch(me.comm(), me.stream());
    const double loss = coded.error(me.stream());
    EXPECT_GE(loss, kLeastLoss);
    EXPECT_LE(loss, kMostLoss);
    EXPECT_EQ(run_device_case(plain(Operation::kAllGather, 90000), me.rank(), me.nranks(),
                              me.comm(), arena, me.stream()),
              "");
    WEFT_OK(ncclCommSuspend(me.comm(), NCCL_SUSPEND_MEM));
    WEFT_OK(ncclCommResume(me.comm()));
  }
}

TEST_F(CompressedHosts, GoOnAfterASuspension) {
  play_on(3, "compressed_after_a_suspension", 3, "", {{"WEFT_COMPRESS", "all_reduce=int8"}});
}

std::string plan_of(ncclComm_t comm, Operation operation, size_t bytes) {
  const char* plan = "";
  WEFT_OK(weftPlanOf(comm, weft_name(operation), bytes, &plan));
  return plan;
}

// The child compresses all_reduces of 1 MiB and more.
WEFT_SCENARIO(plans_beside_compression) {
  ProcessRank me(context);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "coded";
  ncclComm_t coded = nullptr;
  WEFT_OK(ncclCommSplit(me.comm(), 0, me.rank(), &coded, &config));
  ASSERT_NE(coded, nullptr);
  for (const Operation operation : all_operations()) {
    if (operation == Operation::kSendRecv) continue;  // it has no plans to choose from
    for (size_t bytes = 64; bytes <= size_t{64} << 20; bytes *= 4) {
      const std::string with = plan_of(coded, operation, bytes),
                        without = plan_of(me.comm(), operation, bytes);
      if (operation == Operation::kAllReduce && bytes >= (1u << 20)) {
        EXPECT_NE(with.find("int8"), std::string::npos) << with;
      } else {
        EXPECT_EQ(with, without) << name_of(operation) << " of " << bytes;
      }
    }
  }
  EXPECT_EQ(plan_of(coded, Operation::kAllGather, 1 << 20), "multi_connection");
  WEFT_OK(ncclCommDestroy(coded));
}

TEST_P(CompressedHostsOf, TakeTheSamePlansForCallsThatAreNotCompressed) {
  play_on(GetParam(), "plans_beside_compression", GetParam(), "",
          {{"WEFT_COMPRESS", "coded/all_reduce=int8;off"}});
}

// Times decide, so both outcomes are right. All ranks must have the same.
void expect_one_decision(ncclComm_t comm, int rank, int nranks, Arena& arena, cudaStream_t stream) {
  EXPECT_EQ(compressed_calls(comm), 0u) << "trials do not count";
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter}) {
    uint64_t codes = plan_of(comm, operation, size_t{64} << 20).find("int8") != std::string::npos;
    char* const word = arena.take(sizeof codes);
    upload(word, &codes, sizeof codes, stream);
    WEFT_OK(ncclAllReduce(word, word, 1, ncclUint64, ncclSum, comm, stream));
    download(&codes, word, sizeof codes, stream);
    EXPECT_TRUE(codes == 0 || codes == static_cast<uint64_t>(nranks)) << name_of(operation);
  }
  const CodedSum sum(rank, nranks, arena, stream);
  const bool codes =
      plan_of(comm, Operation::kAllReduce, CodedSum::kCount * 4).find("int8") != std::string::npos;
  sum.forget(stream);
  sum.launch(comm, stream);
  EXPECT_LE(sum.error(stream), codes ? kMostLoss : 1e-6);
  EXPECT_EQ(compressed_calls(comm), codes ? 1u : 0u);
}

WEFT_SCENARIO(automatic_on_gpus) {
  {
    ProcessRank me(context);
    Arena arena(size_t{16} << 20, Origin::kCudaMalloc, me.comm());
    expect_one_decision(me.comm(), me.rank(), me.nranks(), arena, me.stream());
    me.note("again");
    WEFT_OK(weftCommSetCompression(me.comm(), "auto"));
    EXPECT_LE(compressed_calls(me.comm()), 1u) << "trials do not count";
  }
  if (context.rank != 0) return;
  size_t remembered = 0;
  for (const auto& file : std::filesystem::directory_iterator(context.argument))
    remembered += file.path().filename().string().starts_with("compress-") ? 1 : 0;
  EXPECT_EQ(remembered, 1u);
}

class AutomaticHosts : public TwoFakeHosts {
 protected:
  void SetUp() override {
    TwoFakeHosts::SetUp();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void play_auto(int hosts, const char* scenario, int n, const Environment& more = {}) const {
    Environment all = {{"WEFT_COMPRESS", "auto"}, {"WEFT_CACHE", folder_}};
    all.insert(more.begin(), more.end());
    play_on(hosts, scenario, n, folder_, all);
  }
  const std::string folder_ = testing::TempDir() + "/weft-gpu-auto-" + std::to_string(getpid());
};

TEST_F(AutomaticHosts, OfOneProcessEachDecideAlike) {
  for (const int n : {2, 3, 4}) {
    play_auto(n, "automatic_on_gpus", n);
    std::filesystem::remove_all(folder_);
  }
}
TEST_F(AutomaticHosts, OfTwoProcessesEachDecideAlike) { play_auto(2, "automatic_on_gpus", 4); }
TEST_F(AutomaticHosts, WithOneHardwareQueueDecideAlike) {
  play_auto(2, "automatic_on_gpus", 2, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}});
}

WEFT_SCENARIO(automatic_with_two_ranks_each) {
  const int n = 2 * context.nranks;
  WEFT_CUDA(cudaSetDevice(0));
  stream_number(0);
  constexpr size_t kEach = size_t{16} << 20;
  Arena arenas[2] = {{kEach, Origin::kCudaMalloc}, {kEach, Origin::kCudaMalloc}};
  run_threads(
      2,
      [&](int thread) {
        const int rank = 2 * context.rank + thread;
        const cudaStream_t stream = stream_number(static_cast<size_t>(thread));
        ncclComm_t comm = nullptr;
        WEFT_OK(ncclCommInitRank(&comm, n, context.ids.at(0), rank));
        expect_one_decision(comm, rank, n, arenas[thread], stream);
        WEFT_OK(weftCommSetCompression(comm, "auto"));
        WEFT_CUDA(cudaStreamSynchronize(stream));
        WEFT_OK(ncclCommDestroy(comm));
      },
      std::chrono::seconds(30));
}

TEST_F(AutomaticHosts, OfTwoThreadsEachDecideAlike) {
  play_auto(2, "automatic_with_two_ranks_each", 2);
}

// A communicator that was made without compression has no lanes.
WEFT_SCENARIO(compression_comes_too_late) {
  ProcessRank me(context);
  for (const char* setting : {"auto", "all_reduce=int8"}) {
    EXPECT_EQ(weftCommSetCompression(me.comm(), setting), ncclInvalidUsage);
    const std::string text = ncclGetLastError(me.comm());
    EXPECT_NE(text.find("these GPUs run no lanes (WEFT_NET_LANES)"), std::string::npos) << text;
  }
}

TEST_F(CompressedHosts, RefuseCompressionThatTheyWereNotMadeFor) {
  play_on(2, "compression_comes_too_late", 2, "", {{"WEFT_COMPRESS", "off"}});
}

}  // namespace
}  // namespace weft::test
