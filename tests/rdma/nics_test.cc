// Two devices a host: every rank uses the one beside its GPU, which the machine names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/rdma/guest.h"
#include "tests/support/conformance.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

std::string log_of(int rank) { return testing::TempDir() + "weft-rails-" + std::to_string(rank); }

WEFT_SCENARIO(over_two_rails) {
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    std::vector<Case> cases = brief_cases(context.nranks);
    std::erase_if(cases, [](const Case& c) { return c.count > 20000; });
    run_cases(cases, context.rank, context.nranks, comm, &watchdog);
    const uint64_t before[2] = {bytes_over("a0"), bytes_over("a1")};
    // When the second call is done, all of the first has crossed the wires.
    expect_all_reduce_works(comm, 200000);
    expect_all_reduce_works(comm, 10);
    for (const int rail : {0, 1})
      EXPECT_GT(bytes_over("a" + std::to_string(rail)), before[rail] + 100000) << "rail " << rail;
  });
}

TEST(Devices, AreTheOnesThatRoutesName) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options;
  options.limit = std::chrono::seconds(200);
  options.environment = [](int rank) {  // ranks 0 and 1 are on host a
    return verbs_host(rank / 2, "01",
                      {{"WEFT_TOPO", WEFT_TEST_DATA "/machines/soft_roce.json"},
                       {"WEFT_SYNTHESIS_SECONDS", "20"},  // the same plans on a slow machine
                       {"NCCL_DEBUG", "INFO"},
                       {"NCCL_DEBUG_SUBSYS", "NET"},
                       {"WEFT_TIMEOUT", "30"},
                       {"NCCL_DEBUG_FILE", log_of(rank)}});
  };
  run_ranks_as_processes("over_two_rails", 4, options);
  for (int rank = 0; rank < 4; rank++) {
    std::ifstream file(log_of(rank));
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    const std::string says = "rank " + std::to_string(rank) + " uses NIC weft_" +
                             (rank < 2 ? "a" : "b") + std::to_string(rank % 2) + ":1 of";
    EXPECT_NE(log.find(says), std::string::npos) << says << " is not in\n" << log;
    unlink(log_of(rank).c_str());
  }
}

// All ranks reduce while the first link is up, down and up again. The argument "loses": the link
// stays up, and loses everything.
WEFT_SCENARIO(a_device_goes_down) {
  const bool loses = context.argument == "loses";
  std::optional<Wires> wires;
  if (context.rank == 0) wires.emplace();
  const auto goes_on = [](const char* link, uint64_t bytes = 300000) {
    const uint64_t before = bytes_over(link);
    const auto end = std::chrono::steady_clock::now() + patience(std::chrono::seconds(20));
    while (bytes_over(link) < before + bytes) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  };
  with_communicator(context, [&](ncclComm_t comm) {
    std::atomic<bool> finished{!wires};
    std::thread disturber([&] {
      if (!wires) return;
      EXPECT_TRUE(goes_on("a0")) << "over the first device";
      EXPECT_TRUE(goes_on("a1")) << "over the second device";
      if (loses) {
        EXPECT_TRUE(shell("tc qdisc add dev a0 root netem loss 100%"));
      } else {
        wires->down(0);
      }
      // Several rounds, in which all ranks have a part.
      EXPECT_TRUE(goes_on("a1", 1500000)) << "over the second, while the first is down";
      if (loses) {
        EXPECT_TRUE(shell("tc qdisc del dev a0 root"));
      } else {
        wires->up(0);
      }
      EXPECT_TRUE(goes_on("a0")) << "over the first, when it is back";
      finished = true;
    });
    constexpr size_t kCount = 60000;
    const int sum = context.nranks * (context.nranks - 1) / 2;
    for (int round = 0, stop = 0; stop == 0; round++) {
      std::vector<int> data(kCount, context.rank + round);
      data[0] = context.rank == 0 && finished ? 1 : 0;
      const ncclResult_t code =
          ncclAllReduce(data.data(), data.data(), kCount, ncclInt32, ncclSum, comm, nullptr);
      EXPECT_EQ(code, ncclSuccess) << ncclGetLastError(comm);
      EXPECT_EQ(std::count(data.begin() + 1, data.end(), sum + context.nranks * round),
                static_cast<ptrdiff_t>(kCount - 1))
          << "round " << round;
      stop = code != ncclSuccess ? 1 : data[0];
    }
    disturber.join();
  });
}

// Every rank is on the device that its route names. One fails: its connections use the other.
void expect_to_go_on(const std::string& how, const Environment& settings) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(250);
  options.environment = [settings](int rank) {
    Environment all = {{"WEFT_TOPO", WEFT_TEST_DATA "/machines/soft_roce.json"},
                       {"WEFT_SYNTHESIS_SECONDS", "20"},
                       {"WEFT_TIMEOUT", "100"},
                       {"NCCL_IB_RETRY_CNT", "2"}};
    all.insert(settings.begin(), settings.end());
    return verbs_host(rank / 2, "01", all);
  };
  options.argument = how;
  run_ranks_as_processes("a_device_goes_down", 4, options);
}

TEST(Devices, ThatFailAreReplacedByTheOthersOfTheHost) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  expect_to_go_on("", {});
  Wires().up(0);
}

// No port goes up that would say so: after 10 seconds they are tried again.
TEST(Devices, ThatLoseEverythingForAWhileAreUsedAgain) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  expect_to_go_on("loses", {{"NCCL_IB_TIMEOUT", "14"}});
  shell("tc qdisc del dev a0 root");
}

}  // namespace
}  // namespace weft::test
