// Loops over cases.
#include "tests/support/conformance.h"

#include <gtest/gtest.h>

#include <memory>

namespace weft::test {
namespace {

constexpr int kReported = 5;

class Failures {
 public:
  void add(const std::string& text) {
    if (++count_ <= kReported) ADD_FAILURE() << text;
  }
  ~Failures() {
    if (count_ > kReported) ADD_FAILURE() << "and " << count_ - kReported << " more failures";
  }

 private:
  int count_ = 0;
};

}  // namespace

void run_cases(const std::vector<Case>& cases, int rank, int nranks, ncclComm_t comm,
               Watchdog* watchdog) {
  Failures failures;
  for (const Case& c : cases) {
    if (watchdog != nullptr) watchdog->note(rank, to_string(c, nranks));
    const std::string bad = run_case(c, rank, nranks, comm);
    if (!bad.empty()) failures.add(bad);
  }
}

void run_cases_in_groups(const std::vector<Case>& cases, const std::vector<ncclComm_t>& comms) {
  Failures failures;
  const int n = static_cast<int>(comms.size());
  Watchdog watchdog(1);
  for (const Case& c : cases) {
    watchdog.note(0, to_string(c, n) + " in one group of all ranks");
    std::vector<std::unique_ptr<CaseRun>> runs;
    for (int r = 0; r < n; ++r) {
      runs.push_back(std::make_unique<CaseRun>(c, r, n, comms[static_cast<size_t>(r)]));
    }
    ncclResult_t result = ncclGroupStart();
    for (auto& run : runs) {
      if (result == ncclSuccess) result = run->launch();
    }
    const ncclResult_t ended = ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
    if (result != ncclSuccess) {
      failures.add(to_string(c, n) + " in a group: " + ncclGetLastError(nullptr));
      continue;
    }
    for (int r = 0; r < n; ++r) {
      const std::string bad = runs[static_cast<size_t>(r)]->check();
      if (!bad.empty())
        failures.add("rank " + std::to_string(r) + ", " + to_string(c, n) + ": " + bad);
    }
  }
}

}  // namespace weft::test
