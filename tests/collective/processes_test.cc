// Conformance with ranks as processes: over shared memory, and over TCP, where each process is its
// own host.
#include "tests/support/processes.h"

#include <gtest/gtest.h>

#include "tests/support/conformance.h"
#include "tests/support/sampling.h"

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

std::vector<int> counts(const std::vector<int>& all) {
  return kSanitized ? std::vector<int>{3} : all;
}

INSTANTIATE_TEST_SUITE_P(Conformance, Processes, testing::ValuesIn(counts({1, 2, 3, 4, 7, 8})),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

INSTANTIATE_TEST_SUITE_P(Conformance, ProcessesOfTwoHosts, testing::ValuesIn(counts({3, 4, 7})),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

}  // namespace
}  // namespace weft::test
