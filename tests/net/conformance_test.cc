// The conformance suite over external plugins, and over the socket plugin's settings. Each process
// is its own host.
#include "tests/support/conformance.h"

#include <gtest/gtest.h>

#include "tests/support/processes.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Environment = std::map<std::string, std::string>;

// The argument is "samples seed network". The communicator must have chosen this network.
WEFT_SCENARIO(network_conformance) {
  std::istringstream words(context.argument);
  int samples = 0;
  uint64_t seed = 0;
  words >> samples >> seed;
  std::vector<Case> cases = brief_cases(context.nranks);
  for (const Case& c : random_cases(context.nranks, samples, seed)) cases.push_back(c);
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(cases, context.rank, context.nranks, comm, &watchdog);
  });
}

void run_over(int ranks, const Environment& settings) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.argument = std::to_string(test_samples(10)) + " " + std::to_string(mix(test_seed(), 11));
  options.environment = [&](int rank) {
    Environment all = separate_hosts(rank);
    for (const auto& [name, value] : settings) all[name] = value;
    return all;
  };
  run_ranks_as_processes("network_conformance", ranks, options);
}

Environment only(const std::string& plugin, const std::string& net) {
  // NCCL_NET ensures that no other network is chosen.
  return {{"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-" + plugin + ".so"},
          {"NCCL_NET", net}};
}

class ExternalPlugin : public testing::TestWithParam<int> {};

TEST_P(ExternalPlugin, OfVersion8GivesTheReferenceResults) {
  run_over(GetParam(), only("tiny8", "tiny8"));
}

TEST_P(ExternalPlugin, OfVersion11GivesTheReferenceResults) {
  run_over(GetParam(), only("tiny11", "tiny11"));
}

TEST(ExternalPlugins, OfTheOtherVersionsGiveTheReferenceResults) {
  for (const std::string name : {"tiny9", "tiny10", "tiny12"}) run_over(3, only(name, name));
}

INSTANTIATE_TEST_SUITE_P(Conformance, ExternalPlugin,
                         testing::ValuesIn(kSanitized ? std::vector<int>{3}
                                                      : std::vector<int>{2, 4, 8}),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

TEST(SocketPlugin, AsASharedObjectGivesTheReferenceResults) {
  run_over(3, {{"NCCL_NET_PLUGIN", WEFT_SOCKET_PLUGIN}, {"NCCL_NET", "weft-socket"}});
}

TEST(SocketPlugin, WithSeveralSocketsAndThreadsGivesTheReferenceResults) {
  run_over(3, {{"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "2"}});
}

TEST(SocketPlugin, OverIpv6GivesTheReferenceResults) {
  run_over(3, {{"NCCL_SOCKET_FAMILY", "AF_INET6"}});
}

TEST(SocketPlugin, ThatChecksOrEncryptsGivesTheReferenceResults) {
  for (const char* wire : {"check", "encrypt"}) {
    run_over(3, {{"WEFT_WIRE", wire}});
    run_over(2,
             {{"WEFT_WIRE", wire}, {"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "2"}});
  }
}

// GPUs use this where there are enough cores.
TEST(SocketPlugin, WithSeveralConnectionsAndProxiesGivesTheReferenceResults) {
  std::string plan;
  for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                 "reduce", "alltoall", "gather", "scatter"})
    plan += (plan.empty() ? "" : ",") + std::string(collective) + "=multi_connection";
  for (const int ranks : {2, 4})
    run_over(ranks, {{"WEFT_PROXY_THREADS", "3"}, {"WEFT_PLAN", plan}});
}

WEFT_SCENARIO(different_networks) {
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank), ncclSuccess);
  std::printf("says: %s\n", ncclGetLastError(nullptr));
  if (comm != nullptr) ncclCommAbort(comm);
}

// What two ranks say whose init fails. The settings are rank 1's, or both ranks'.
std::string what_they_say(const Environment& settings, bool both) {
  ProcessOptions options;
  options.environment = [&](int rank) {
    Environment all = separate_hosts(rank);
    if (rank == 1 || both) all.insert(settings.begin(), settings.end());
    return all;
  };
  std::string output;
  for (const ProcessResult& result : run_processes("different_networks", 2, options)) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    output += result.output;
  }
  return output;
}

TEST(Hosts, WithDifferentNetworksAreToldSo) {
  const std::string said = what_they_say(only("tiny8", "tiny8"), false);
  EXPECT_NE(said.find("all hosts need the same plugin"), std::string::npos) << said;
}

TEST(Hosts, WithDifferentWiresAreToldSo) {
  const std::string said = what_they_say({{"WEFT_WIRE", "encrypt"}}, false);
  EXPECT_NE(said.find("rank 1 has WEFT_WIRE=encrypt, rank 0 has WEFT_WIRE=plain"),
            std::string::npos)
      << said;
}

TEST(Hosts, DoNotSendAsItIsWhatShouldBeEncrypted) {
  Environment settings = only("tiny8", "tiny8");
  settings["WEFT_WIRE"] = "encrypt";
  const std::string said = what_they_say(settings, true);
  EXPECT_NE(said.find("network tiny8 cannot do WEFT_WIRE=encrypt"), std::string::npos) << said;
}

}  // namespace
}  // namespace weft::test
