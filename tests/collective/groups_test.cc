// Conformance where one thread drives all ranks inside groups, as single-process multi-GPU programs
// do.
#include <gtest/gtest.h>

#include "tests/support/conformance.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

class OneThreadForAllRanks : public testing::TestWithParam<int> {
 protected:
  void run(const std::vector<Case>& cases) {
    const CommSet set(GetParam());
    std::vector<ncclComm_t> comms;
    for (int r = 0; r < set.size(); ++r) comms.push_back(set[r]);
    run_cases_in_groups(cases, comms);
  }
};

TEST_P(OneThreadForAllRanks, GivesTheReferenceResultsInCoreCases) { run(brief_cases(GetParam())); }

TEST_P(OneThreadForAllRanks, GivesTheReferenceResultsInRandomCases) {
  run(random_cases(GetParam(), test_samples(30), mix(test_seed(), 1)));
}

INSTANTIATE_TEST_SUITE_P(Conformance, OneThreadForAllRanks,
                         testing::ValuesIn(kSanitized ? std::vector<int>{2, 5} : rank_counts()),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

}  // namespace
}  // namespace weft::test
