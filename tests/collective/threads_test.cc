// Conformance with ranks as threads: the whole core and random samples, for every number of ranks.
#include "tests/support/threads.h"

#include <gtest/gtest.h>

#include "tests/support/conformance.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

class ThreadedRanks : public testing::TestWithParam<int> {};

void run(int n, const std::vector<Case>& cases) {
  Watchdog watchdog(n);
  run_ranks_as_threads(
      n, [&](int rank, ncclComm_t comm) { run_cases(cases, rank, n, comm, &watchdog); },
      std::chrono::minutes(30));
}

TEST_P(ThreadedRanks, GiveTheReferenceResultsInEveryCoreCase) {
  run(GetParam(), core_cases(GetParam()));
}

TEST_P(ThreadedRanks, GiveTheReferenceResultsInRandomCases) {
  run(GetParam(), random_cases(GetParam(), test_samples(60), test_seed()));
}

std::vector<int> counts() { return kSanitized ? std::vector<int>{2, 5} : rank_counts(); }

INSTANTIATE_TEST_SUITE_P(Conformance, ThreadedRanks, testing::ValuesIn(counts()),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

}  // namespace
}  // namespace weft::test
