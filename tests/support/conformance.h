// Runs lists of cases over one communicator and reports the ones that fail.
#pragma once

#include <vector>

#include "tests/support/case_list.h"
#include "tests/support/watchdog.h"

namespace weft::test {

// All cases in order, as `rank`. The first few failures are reported; the rest is counted. Every
// rank of the communicator must call it with the same list. `watchdog` may be null.
void run_cases(const std::vector<Case>& cases, int rank, int nranks, ncclComm_t comm,
               Watchdog* watchdog);

// The same with all ranks driven by the calling thread, each case as one group.
void run_cases_in_groups(const std::vector<Case>& cases, const std::vector<ncclComm_t>& comms);

}  // namespace weft::test
