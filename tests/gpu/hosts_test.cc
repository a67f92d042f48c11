// Processes that share the GPU and act as several hosts.
#include <gtest/gtest.h>

#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/support/fake_hosts.h"
#include "tests/gpu/support/own_log.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/explained_calls.h"
#include "tests/support/nic_bytes.h"
#include "tests/support/patterns.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

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

// Small calls are eager, unless there is no room for that.
const Environment kNotEager = {{"WEFT_EAGER_BYTES", "0"}};
TEST_F(TwoFakeHosts, OfTwoProcessesEachWaitForGrants) {
  play_on(2, "device_conformance", 4, "cudaMalloc", kNotEager);
  play_on(2, "graphs_between_processes", 4, "cudaMalloc", kNotEager);
}
TEST_P(FakeHosts, OneForEachProcessRunLanes) {
  Environment lanes = {{"WEFT_NET_LANES", "2"}};
  play_on(GetParam(), "device_conformance", GetParam(), "cudaMalloc", lanes);
  lanes.insert(kNotEager.begin(), kNotEager.end());
  play_on(GetParam(), "device_conformance", GetParam(), "cudaMalloc", lanes);
}
TEST_F(TwoFakeHosts, WaitForGrantsOverNicsThatReachGpus) {
  Environment all = gpu_nics();
  all.insert(kNotEager.begin(), kNotEager.end());
  play_on(2, "device_conformance", 4, "cudaMalloc", all);
}

TEST_F(TwoFakeHosts, LetNicsReachTheMemoryOfGpus) {
  play_on(2, "device_conformance", 4, "cudaMalloc", gpu_nics());
  play_on(2, "two_ranks_each", 2, "", gpu_nics());
}
// Several messages to each peer in a group: small ones, which are packets, and large ones.
TEST_F(TwoFakeHosts, OfTwoProcessesEachExchangeMessagesOfAllSizes) {
  play_on(2, "several_messages", 4, "");
  play_on(2, "several_messages", 4, "", kNotEager);
}
TEST_P(FakeHosts, OneForEachProcessExchangeMessagesOfAllSizes) {
  play_on(GetParam(), "several_messages", GetParam(), "", {{"WEFT_NET_LANES", "2"}});
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
  const Environment all = logged(gpu_nics());
  for (const int n : {2, 4}) play_on(2, "buffers_of_nics", n, "", all);
}
TEST_F(TwoFakeHosts, KeepBuffersFromNicsWhereSharingIsOff) {
  Environment all = logged(gpu_nics());
  all["WEFT_SHARE_BUFFERS"] = "0";
  play_on(2, "buffers_of_nics", 4, "none", all);
}
// Memory of calls is freed, and other memory comes to its address. The plugin copies with CUDA, as
// no NIC does: it would wait for a rank of its host that unmaps memory beside a kernel.
TEST_F(TwoFakeHosts, LetNicsReachBuffersThatAreExchanged) {
  play_on(2, "exchanged_buffers", 2, "", gpu_nics());
}
TEST_F(TwoFakeHosts, OfTwoProcessesEachExchangeBuffers) { play_on(2, "exchanged_buffers", 4, ""); }
TEST_F(TwoFakeHosts, OfTwoProcessesEachReplayGraphs) {
  play_on(2, "graphs_between_processes", 4, "registered");
}

// Ranks leave a communicator when their own part of its last call is done. Others may not have
// taken what they sent: the machine is busy.
WEFT_SCENARIO(leaves_at_once) {
  ProcessRank me(context);
  Arena arena(size_t{16} << 20, Origin::kCudaMalloc);
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); i++)
    busy.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) continue;
    });
  for (int i = 0; i < 10; i++) {
    me.note("communicator " + std::to_string(i));
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(me.comm(), 0, me.rank(), &part, nullptr));
    arena.reset();
    const Case last = plain(Operation::kSendRecv, 36058);
    const std::string bad = run_device_case(last, me.rank(), me.nranks(), part, arena, me.stream());
    EXPECT_TRUE(bad.empty()) << bad;
    WEFT_OK(ncclCommDestroy(part));
  }
}

TEST_F(TwoFakeHosts, LeaveAtOnceWithoutLosingData) { play_on(2, "leaves_at_once", 4, ""); }
TEST_F(TwoFakeHosts, LetNicsSendWhatARankLeft) { play_on(2, "leaves_at_once", 4, "", gpu_nics()); }

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
    return nic_bytes("counted_gathers", calls, "ndv2x2",
                     {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
  };
  const double one = (bytes("5") - bytes("1")) / 4, bound = 16.0 * (1 << 20);
  std::printf("%.4f of the bound\n", one / bound);
  EXPECT_GE(one, bound);
  EXPECT_LE(one, 1.005 * bound);
}

WEFT_SCENARIO(gpus_run_what_was_explained) {
  ProcessRank me(context);
  expect_plans(me.comm(), context.argument);
  Arena arena(size_t{64} << 20, Origin::kCudaMalloc, me.comm());
  me.run(explained_cases(me.nranks()), arena);
}

// The plan, its lanes, thread blocks, ports and NICs. tests/planner/emulation_test.cc does the same
// in host mode.
class EmulatedGpus : public TwoFakeHosts, public testing::WithParamInterface<EmulatedMachine> {};

TEST_P(EmulatedGpus, RunThePlansPortsAndNicsThatExplainNames) {
  const ExplainedCalls calls(GetParam());
  calls.run("gpus_run_what_was_explained");
  calls.expect_that_they_ran();
}

INSTANTIATE_TEST_SUITE_P(Of, EmulatedGpus,
                         testing::Values(EmulatedMachine{"pcie-4xx2", 8, 2, true, "nic0"},
                                         EmulatedMachine{"dgx1v", 8, 1, true, "none"},
                                         EmulatedMachine{"dgx-h100", 8, 1, true, "none"},
                                         EmulatedMachine{"ndv2x2", 16, 2, true, "nic0"}),
                         [](const auto& tested) {
                           std::string name = tested.param.topo;
                           std::erase(name, '-');
                           return name;
                         });

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
