// The conformance suite over verbs. Each process is its own host.
#include "tests/support/conformance.h"

#include <gtest/gtest.h>

#include "tests/comm/checks.h"
#include "tests/rdma/guest.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// The argument is "samples seed".
WEFT_SCENARIO(verbs_conformance) {
  std::istringstream words(context.argument);
  int samples = 0;
  uint64_t seed = 0;
  words >> samples >> seed;
  std::vector<Case> cases = brief_cases(context.nranks);
  for (const Case& c : random_cases(context.nranks, samples, seed)) cases.push_back(c);
  // Megabytes show nothing new on an emulated machine, except for the case below.
  std::erase_if(cases, [](const Case& c) { return c.count > 20000; });
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(cases, context.rank, context.nranks, comm, &watchdog);
    expect_all_reduce_works(comm, 400000);
  });
}

void run_over(int ranks, const std::string& wires, const Environment& settings, int samples) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(200);
  options.argument =
      std::to_string(test_samples(samples)) + " " + std::to_string(mix(test_seed(), 31));
  options.environment = [&](int rank) { return verbs_host(rank, wires, settings); };
  run_ranks_as_processes("verbs_conformance", ranks, options);
}

TEST(Verbs, GiveTheReferenceResults) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_over(2, "0", {}, 4);
}

TEST(Verbs, GiveTheReferenceResultsToFourRanks) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_over(4, "0", {}, 4);
}

TEST(Verbs, GiveTheReferenceResultsOverTwoRailsAndManyQueuePairs) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  run_over(2, "01", {{"NCCL_IB_QPS_PER_CONNECTION", "2"}, {"NCCL_IB_SPLIT_DATA_ON_QPS", "1"}}, 4);
}

WEFT_SCENARIO(default_network) {
  with_communicator(context, [&](ncclComm_t comm) {
    const uint64_t before = bytes_over("a0");
    expect_all_reduce_works(comm, 50000);
    EXPECT_GT(bytes_over("a0"), before + 90000) << "the data took another way";
  });
}

TEST(Verbs, AreTheDefaultWhereAPortIsUp) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options;
  options.environment = [](int rank) {
    return verbs_host(rank, "0",
                      {{"NCCL_NET_PLUGIN", "none"}, {"NCCL_NET", ""}, {"NCCL_IB_DISABLE", "0"}});
  };
  run_ranks_as_processes("default_network", 2, options);
}

}  // namespace
}  // namespace weft::test
