// Faults between hosts over verbs: lost packets, links that go down and come back, hosts that die,
// machines without the right set-up.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/rdma/guest.h"
#include "tests/support/patterns.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

ProcessOptions hosts(const std::string& wires, const Environment& settings = {}) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment = [=](int rank) { return verbs_host(rank, wires, settings); };
  return options;
}

// All ranks reduce until rank 0's `go_on` returns false, and check results. Returns the last code.
ncclResult_t reduce_while(ncclComm_t comm, const std::function<bool()>& go_on, int* rounds) {
  const int me = rank_of(comm);
  constexpr size_t kCount = 80000;  // large enough for stripes
  for (int round = 0;; round++, ++*rounds) {
    std::vector<int> data(kCount, me + round);
    data[0] = me == 0 && !go_on() ? 1 : 0;
    const ncclResult_t code =
        ncclAllReduce(data.data(), data.data(), kCount, ncclInt32, ncclSum, comm, nullptr);
    if (code != ncclSuccess) return code;
    EXPECT_EQ(data[1], 2 * round + 1);
    EXPECT_EQ(std::count(data.begin() + 1, data.end(), data[1]),
              static_cast<ptrdiff_t>(kCount - 1));
    if (data[0] != 0) return ncclSuccess;
  }
}

WEFT_SCENARIO(lossy_wire) {
  with_communicator(context, [&](ncclComm_t comm) {
    int rounds = 0;
    EXPECT_EQ(reduce_while(
                  comm, [&] { return rounds < 8; }, &rounds),
              ncclSuccess);
  });
}

TEST(LossyWire, GivesTheRightData) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ASSERT_TRUE(
      shell("tc qdisc add dev a0 root netem loss 0.3% && "
            "tc qdisc add dev b0 root netem loss 0.3%"));
  run_ranks_as_processes("lossy_wire", 2, hosts("0"));
  EXPECT_FALSE(
      shell("tc -s qdisc show dev a0 | grep 'dropped 0,' && "
            "tc -s qdisc show dev b0 | grep 'dropped 0,'"))
      << "the wire lost nothing";
  shell("tc qdisc del dev a0 root; tc qdisc del dev b0 root");
}

// Rank 0 runs `disturb` while reductions go on. They end when it returns.
void reduce_meanwhile(const ProcessContext& context, const std::function<void(Wires&)>& disturb) {
  std::optional<Wires> wires;
  if (context.rank == 0) wires.emplace();
  with_communicator(context, [&](ncclComm_t comm) {
    std::atomic<bool> finished{false};
    std::thread thread([&] {
      if (wires) disturb(*wires);
      finished = true;
    });
    int rounds = 0;
    EXPECT_EQ(reduce_while(
                  comm, [&] { return !finished.load(); }, &rounds),
              ncclSuccess)
        << ncclGetLastError(comm);
    thread.join();
    std::printf("%d rounds\n", rounds);
  });
}

// Waits until this many more bytes have gone over the interface. False if they do not within 20 s.
bool wait_for_traffic(const std::string& interface, uint64_t more = 300000) {
  const uint64_t before = bytes_over(interface);
  const auto deadline = Clock::now() + patience(std::chrono::seconds(20));
  while (bytes_over(interface) < before + more) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

WEFT_SCENARIO(wire_goes_down_and_up) {
  reduce_meanwhile(context, [](Wires& wires) {
    EXPECT_TRUE(wait_for_traffic("a0"));
    wires.down(0);
    std::this_thread::sleep_for(milliseconds(1500));
    wires.up(0);
    EXPECT_TRUE(wait_for_traffic("a0")) << "when it is back";
  });
}

TEST(Wire, ThatGoesDownAndUpCostsOnlyTime) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_ranks_as_processes("wire_goes_down_and_up", 2, hosts("0", {{"NCCL_IB_RETRY_CNT", "2"}}));
  Wires().up(0);
}

WEFT_SCENARIO(one_of_two_wires_goes_down) {
  reduce_meanwhile(context, [](Wires& wires) {
    EXPECT_TRUE(wait_for_traffic("a0"));
    EXPECT_TRUE(wait_for_traffic("a1"));
    wires.down(0);
    EXPECT_TRUE(wait_for_traffic("a1")) << "over the second wire, while the first is down";
    wires.up(0);
    EXPECT_TRUE(wait_for_traffic("a0")) << "over the first wire, when it is back";
  });
}

TEST(TwoWires, GoOnWithOneWhileTheOtherIsDown) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_ranks_as_processes("one_of_two_wires_goes_down", 2, hosts("01"));
  Wires().up(0);
}

// The communicator must fail within a time limit, and the text must name the other rank.
void expect_end(const ProcessContext& context, const std::function<void(ncclComm_t)>& blow,
                std::chrono::seconds normal, const char* words) {
  const double limit = std::chrono::duration<double>(patience(normal)).count();
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank));
  expect_all_reduce_works(comm);
  blow(comm);
  const auto begin = Clock::now();
  int rounds = 0;
  const ncclResult_t code = reduce_while(
      comm, [&] { return seconds_since(begin) < limit; }, &rounds);
  EXPECT_TRUE(code == ncclRemoteError || code == ncclSystemError) << code;
  EXPECT_LT(seconds_since(begin), limit);
  const std::string text = ncclGetLastError(comm);
  std::printf("after %.1f s: %s\n", seconds_since(begin), text.c_str());
  EXPECT_TRUE(says(text, context.rank == 0 ? "(rank|peer) 1" : "(rank|peer) 0")) << text;
  EXPECT_TRUE(says(text, words)) << text;
  WEFT_OK(ncclCommAbort(comm));
}

WEFT_SCENARIO(wire_stays_down) {
  std::optional<Wires> wires;
  if (context.rank == 0) wires.emplace();
  const auto blow = [&](ncclComm_t comm) {
    wait_until_all_are_here(comm, 0);
    if (wires) wires->down(0);
  };
  expect_end(context, blow, std::chrono::seconds(30), "weft_[ab]0 port 1|gave up|broke");
}

TEST(Wire, ThatStaysDownIsAnErrorThatNamesThePeer) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_ranks_as_processes("wire_stays_down", 2,
                         hosts("0", {{"NCCL_IB_RETRY_CNT", "2"}, {"WEFT_IB_RECOVERY", "2"}}));
  Wires().up(0);
}

WEFT_SCENARIO(host_is_killed) {
  expect_end(
      context, [](ncclComm_t comm) { die_when_all_are_here(comm, 1); }, std::chrono::seconds(15),
      "died|its process ended");
}

TEST(Host, ThatIsKilledIsAnErrorThatNamesIt) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  const auto results = run_processes("host_is_killed", 2, hosts("0"));
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
  EXPECT_EQ(results[1].signal, SIGKILL) << results[1].output;
}

// No communicator comes up. The argument is the expected error text.
WEFT_SCENARIO(cannot_start) {
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank), ncclSuccess);
  const std::string text = ncclGetLastError(nullptr);
  std::printf("says: %s\n", text.c_str());
  EXPECT_TRUE(says(text, context.argument.c_str())) << text;
  if (comm != nullptr) ncclCommAbort(comm);
}

void expect_refusal(const Environment& settings, const std::string& words) {
  ProcessOptions options = hosts("0", settings);
  options.argument = words;
  run_ranks_as_processes("cannot_start", 2, options);
}

TEST(Settings, ThatNameNoDeviceAreExplained) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  expect_refusal({{"NCCL_IB_HCA", "=mlx5_7"}}, "weft_a0 port 1: NCCL_IB_HCA leaves it out");
}

TEST(Settings, ThatNameNoAddressAreExplained) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  expect_refusal({{"NCCL_IB_GID_INDEX", "7"}}, "no address of index 7 .*10\\.80\\.0\\.[12]");
}

WEFT_SCENARIO(locks_no_memory) {
  const rlimit none{0, 0};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
  scenario_cannot_start(context);
}

TEST(Process, ThatMayLockNoMemoryIsToldSo) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options = hosts("0");
  options.argument = "ulimit -l|gave up";
  run_ranks_as_processes("locks_no_memory", 2, options);
}

}  // namespace
}  // namespace weft::test
