// Two devices a host: every rank uses the one beside its GPU, which the machine names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/comm/checks.h"
#include "tests/rdma/guest.h"
#include "tests/support/conformance.h"
#include "tests/support/require.h"

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

}  // namespace
}  // namespace weft::test
