// Conformance with ranks as processes: over shared memory, and over TCP, where each process is its
// own host.
#include "tests/support/processes.h"

#include <gtest/gtest.h>

#include "tests/collective/exchanges.h"
#include "tests/support/conformance.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

// The argument is "samples seed".
WEFT_SCENARIO(conformance) {
  size_t end = 0;
  const int samples = std::stoi(context.argument, &end);
  const uint64_t seed = std::stoull(context.argument.substr(end));
  std::vector<Case> cases = brief_cases(context.nranks);
  for (const Case& c : random_cases(context.nranks, samples, seed)) cases.push_back(c);
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(cases, context.rank, context.nranks, comm, &watchdog);
  });
}

WEFT_SCENARIO(exchanges) {
  const uint64_t seed = std::stoull(context.argument);
  with_communicator(context, [&](ncclComm_t comm) {
    for (uint64_t k = 0; k < 24; k++)
      EXPECT_EQ(run_exchange(random_exchange(context.nranks, mix(seed, k)), context.rank, comm), "")
          << "exchange " << k;
  });
}

ProcessOptions options_for(int samples, uint64_t seed) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.argument = std::to_string(samples) + " " + std::to_string(seed);
  return options;
}

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, OfOneHostGiveTheReferenceResults) {
  run_ranks_as_processes("conformance", GetParam(),
                         options_for(test_samples(40), mix(test_seed(), 2)));
}

TEST_P(Processes, OfSeparateHostsGiveTheReferenceResults) {
  ProcessOptions options = options_for(test_samples(15), mix(test_seed(), 3));
  options.environment = separate_hosts;
  run_ranks_as_processes("conformance", GetParam(), options);
}

TEST_P(Processes, ExchangeBlocksOfDifferentLengths) {
  ProcessOptions options;
  options.argument = std::to_string(mix(test_seed(), 7));
  run_ranks_as_processes("exchanges", GetParam(), options);
  options.environment = separate_hosts;
  run_ranks_as_processes("exchanges", GetParam(), options);
}

TEST_P(Processes, WithoutSharedMemoryGiveTheReferenceResults) {
  ProcessOptions options = options_for(test_samples(10), mix(test_seed(), 5));
  options.environment = [](int) -> std::map<std::string, std::string> {
    return {{"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"}};
  };
  run_ranks_as_processes("conformance", GetParam(), options);
}

TEST_P(Processes, WithMessagesCutSmallGiveTheReferenceResults) {
  for (const char* zero_copy : {"1", "1G"}) {
    ProcessOptions options = options_for(test_samples(10), mix(test_seed(), 6));
    options.environment = [&](int rank) -> std::map<std::string, std::string> {
      std::map<std::string, std::string> environment = separate_hosts(rank % 2);
      environment.insert({{"WEFT_SLICE_BYTES", "1K"},
                          {"WEFT_RING_BYTES", "8K"},
                          {"WEFT_ZERO_COPY_BYTES", zero_copy}});
      return environment;
    };
    run_ranks_as_processes("conformance", GetParam(), options);
  }
}

class ProcessesOfTwoHosts : public testing::TestWithParam<int> {};

TEST_P(ProcessesOfTwoHosts, GiveTheReferenceResults) {
  ProcessOptions options = options_for(test_samples(10), mix(test_seed(), 4));
  options.environment = [](int rank) { return separate_hosts(rank % 2); };
  run_ranks_as_processes("conformance", GetParam(), options);
}

// The argument of a process is that of `conformance`. Arrays of all sizes take the plan.
std::map<std::string, std::string> by_hierarchy(const std::string& hosts, int rank) {
  std::map<std::string, std::string> environment = separate_hosts(hosts[static_cast<size_t>(rank)]);
  std::string plan;
  for (const char* kind :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall"})
    plan += (plan.empty() ? "" : ",") + std::string(kind) + "=hierarchical";
  environment["WEFT_PLAN"] = plan;
  return environment;
}

// One character per rank names its host.
class ProcessesOfHosts : public testing::TestWithParam<const char*> {};

TEST_P(ProcessesOfHosts, GiveTheReferenceResultsByHierarchicalPlans) {
  const std::string hosts = GetParam();
  ProcessOptions options = options_for(test_samples(25), mix(test_seed(), 7));
  options.environment = [&](int rank) { return by_hierarchy(hosts, rank); };
  run_ranks_as_processes("conformance", static_cast<int>(hosts.size()), options);
}

TEST_P(ProcessesOfHosts, GiveThemWithMessagesCutSmall) {
  const std::string hosts = GetParam();
  for (const char* zero_copy : {"1", "1G"}) {
    ProcessOptions options = options_for(test_samples(10), mix(test_seed(), 8));
    options.environment = [&](int rank) {
      auto environment = by_hierarchy(hosts, rank);
      environment.insert({{"WEFT_SLICE_BYTES", "1K"},
                          {"WEFT_RING_BYTES", "8K"},
                          {"WEFT_ZERO_COPY_BYTES", zero_copy}});
      return environment;
    };
    run_ranks_as_processes("conformance", static_cast<int>(hosts.size()), options);
  }
}

WEFT_SCENARIO(names_its_plan) {
  with_communicator(context, [&](ncclComm_t comm) {
    for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}) {
      const char* plan = "";
      EXPECT_EQ(weftPlanOf(comm, kind, 1u << 20, &plan), ncclSuccess);
      EXPECT_STREQ(plan, "hierarchical") << kind;
      EXPECT_EQ(weftPlanOf(comm, kind, 4u << 10, &plan), ncclSuccess);
      EXPECT_STRNE(plan, "hierarchical") << kind;
    }
  });
}

TEST(HostsOfSeveralProcesses, TakeHierarchicalPlansForLargeArrays) {
  for (const std::string hosts : {"0011", "010", "001"}) {
    ProcessOptions options;
    options.environment = [&](int rank) {
      return separate_hosts(hosts[static_cast<size_t>(rank)]);
    };
    run_ranks_as_processes("names_its_plan", static_cast<int>(hosts.size()), options);
  }
}

std::vector<int> counts(const std::vector<int>& all) {
  return kSanitized ? std::vector<int>{3} : all;
}

INSTANTIATE_TEST_SUITE_P(Conformance, Processes, testing::ValuesIn(counts({1, 2, 3, 4, 7, 8})),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

INSTANTIATE_TEST_SUITE_P(Conformance, ProcessesOfTwoHosts, testing::ValuesIn(counts({3, 4, 7})),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

INSTANTIATE_TEST_SUITE_P(Conformance, ProcessesOfHosts,
                         testing::ValuesIn(kSanitized
                                               ? std::vector<const char*>{"010"}
                                               : std::vector<const char*>{"00001111", "00112233",
                                                                          "0001", "01010101", "01",
                                                                          "1100022"}),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace weft::test
