// WEFT_TOPO with fake hosts, in host mode: what runs is what weft explain names.
#include <gtest/gtest.h>

#include "tests/support/conformance.h"
#include "tests/support/explained_calls.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

WEFT_SCENARIO(runs_what_was_explained) {
  with_communicator(context, [&](ncclComm_t comm) {
    expect_plans(comm, context.argument);
    Watchdog watchdog(context.rank + 1);
    run_cases(explained_cases(context.nranks), context.rank, context.nranks, comm, &watchdog);
  });
}

class Emulation : public testing::TestWithParam<EmulatedMachine> {};

TEST_P(Emulation, RunsThePlansPortsAndNicsThatExplainNames) {
  if (kSanitized) GTEST_SKIP() << "sanitized: searches for plans take too long";
  const ExplainedCalls calls(GetParam());
  calls.run("runs_what_was_explained");
  calls.expect_that_they_ran();
}

INSTANTIATE_TEST_SUITE_P(Of, Emulation,
                         testing::Values(EmulatedMachine{"pcie-4xx2", 8, 2, false, "nic0"},
                                         EmulatedMachine{"dgx1v", 8, 1, false, "none"},
                                         EmulatedMachine{
                                             "dgx-a100x2", 16, 2, false,
                                             "nic0,nic1,nic2,nic3,nic4,nic5,nic6,nic7"}),
                         [](const auto& tested) {
                           std::string name = tested.param.topo;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace weft::test
