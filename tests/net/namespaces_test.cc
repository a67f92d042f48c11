// Ranks on separate hosts: network namespaces, with slow and lossy links between them.
#include "tests/net/namespaces.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/support/conformance.h"
#include "tests/support/patterns.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

// The argument is the seed: all ranks must draw the same cases.
WEFT_SCENARIO(hosts_conformance) {
  std::vector<Case> cases =
      random_cases(context.nranks, test_samples(20), std::stoull(context.argument));
  // Transfers of megabytes show nothing new on a slow link.
  std::erase_if(cases, [](const Case& c) { return c.count > 50000; });
  with_communicator_by_address(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(cases, context.rank, context.nranks, comm, &watchdog);
    expect_all_reduce_works(comm, 300000);
  });
}

struct Setting {
  const char* name;
  int hosts = 2;
  WireQuality quality;
  bool silent = false, ipv6 = false;
};

ProcessOptions options_for(Hosts& hosts, const Setting& setting) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(100);
  options.argument = std::to_string(mix(test_seed(), 21));
  const std::string port = std::to_string(free_port());
  options.environment = [setting, port](int) -> std::map<std::string, std::string> {
    const std::string address = address_of(0, setting.ipv6);
    return {{"NCCL_COMM_ID", setting.ipv6 ? "[" + address + "]:" + port : address + ":" + port},
            {"NCCL_SOCKET_FAMILY", setting.ipv6 ? "AF_INET6" : "AF_INET"}};
  };
  options.place = [&hosts](int rank, const std::function<void()>& start) {
    hosts.run_on(rank, start);
  };
  return options;
}

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class HostsOfTheirOwn : public testing::TestWithParam<Setting> {};

TEST_P(HostsOfTheirOwn, GiveTheReferenceResults) {
  const Setting& setting = GetParam();
  Hosts hosts(setting.hosts, setting.quality, setting.silent);
  if (!hosts.obstacle().empty()) WEFT_SKIP("namespaces", hosts.obstacle());
  run_ranks_as_processes("hosts_conformance", setting.hosts, options_for(hosts, setting));
  if (setting.quality.loss > 0) {
    EXPECT_GT(hosts.lost(), 0) << "the wire lost nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, HostsOfTheirOwn,
                         testing::Values(Setting{"perfect", 3, {}}, Setting{"slow", 2, {3000, 0}},
                                         Setting{"lossy", 2, {500, 0.01}},
                                         Setting{"manyLossy", 4, {200, 0.003}},
                                         Setting{"ipv6", 2, {}, false, true},
                                         Setting{"silentFirstAddress", 2, {}, true}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// The data of a call is right, and the call ends in time, though packets get lost.
WEFT_SCENARIO(hosts_all_reduce) {
  with_communicator_by_address(context, [&](ncclComm_t comm) {
    const auto before = std::chrono::steady_clock::now();
    expect_all_reduce_works(comm, (1u << 20) / sizeof(int));
    const auto took = std::chrono::steady_clock::now() - before;
    EXPECT_LT(took, patience(std::chrono::seconds(60)));
    const char* plan = "";
    WEFT_OK(weftPlanOf(comm, "all_reduce", 1u << 20, &plan));
    EXPECT_STREQ(plan, "hierarchical");
    std::printf("took %.1f s\n", std::chrono::duration<double>(took).count());
  });
}

TEST(HostsOfFourRanks, ReduceAMegabyteOverASlowAndLossyWire) {
  const Setting setting{"slowAndLossy", 2, {20000, 0.01}};
  Hosts hosts(setting.hosts, setting.quality, false);
  if (!hosts.obstacle().empty()) WEFT_SKIP("namespaces", hosts.obstacle());
  ProcessOptions options = options_for(hosts, setting);
  options.place = [&hosts](int rank, const std::function<void()>& start) {
    hosts.run_on(rank / 4, start);
  };
  run_ranks_as_processes("hosts_all_reduce", 8, options);
  EXPECT_GT(hosts.lost(), 0) << "the wire lost nothing";
}

// The victim dies in the middle. The others learn it from its connections alone.
WEFT_SCENARIO(host_dies) {
  ncclUniqueId id{};
  WEFT_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, id, context.rank));
  expect_all_reduce_works(comm);
  die_when_all_are_here(comm, 1);
  const auto before = std::chrono::steady_clock::now();
  std::vector<float> data(1000000, 1.0f);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_TRUE(result == ncclRemoteError || result == ncclSystemError) << result;
  EXPECT_LT(std::chrono::steady_clock::now() - before, patience(std::chrono::seconds(10)));
  const std::string text = ncclGetLastError(comm);
  EXPECT_TRUE(says(text, "(rank|peer) 1([^0-9]|$)")) << "says: " << text;
  WEFT_OK(ncclCommAbort(comm));
}

TEST(HostThatDies, IsReportedByNameOverALossyWire) {
  const Setting setting{"dies", 3, {500, 0.01}};
  Hosts hosts(setting.hosts, setting.quality, false);
  if (!hosts.obstacle().empty()) WEFT_SKIP("namespaces", hosts.obstacle());
  const auto results = run_processes("host_dies", setting.hosts, options_for(hosts, setting));
  for (int r : {0, 2})
    EXPECT_EQ(results[static_cast<size_t>(r)].exit_code, 0)
        << results[static_cast<size_t>(r)].output;
}

// Host 1 goes dark: no connection is closed, nobody answers any more.
WEFT_SCENARIO(host_goes_dark) {
  ncclUniqueId id{};
  WEFT_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, id, context.rank));
  expect_all_reduce_works(comm);
  if (context.rank == 1) {
    EXPECT_EQ(std::system("ip link set eth0 down"), 0);
    std::this_thread::sleep_for(std::chrono::seconds(5));  // alive, and silent
    WEFT_OK(ncclCommAbort(comm));
    return;
  }
  const auto before = std::chrono::steady_clock::now();
  std::vector<float> data(1000, 1.0f);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_EQ(result, ncclRemoteError);
  // The bound is WEFT_PEER_TIMEOUT, and a second for what was on its way.
  EXPECT_LT(std::chrono::steady_clock::now() - before, patience(std::chrono::milliseconds(4500)));
  const std::string text = ncclGetLastError(comm);
  EXPECT_TRUE(says(text, "rank 1 .*died")) << text;
  WEFT_OK(ncclCommAbort(comm));
}

TEST(HostThatGoesDark, IsNoticedWithinTheLimit) {
  if (kSanitized) GTEST_SKIP() << "it is about time, and takes five seconds";
  const Setting setting{"dark", 3, {}};
  Hosts hosts(setting.hosts, setting.quality, false);
  if (!hosts.obstacle().empty()) WEFT_SKIP("namespaces", hosts.obstacle());
  ProcessOptions options = options_for(hosts, setting);
  const auto usual = options.environment;
  options.environment = [usual](int rank) {
    auto variables = usual(rank);
    variables["WEFT_PEER_TIMEOUT"] = "3";
    return variables;
  };
  run_ranks_as_processes("host_goes_dark", setting.hosts, options);
}

}  // namespace
}  // namespace weft::test
