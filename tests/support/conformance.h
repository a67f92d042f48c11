// Runs lists of cases over one communicator and reports the cases that fail.
#pragma once

#include <vector>

#include "tests/support/case_list.h"
#include "tests/support/watchdog.h"

namespace weft::test {

// Runs all cases in order, as `rank`. Reports the first few failures and counts the rest. Every
// rank of the communicator must call it with the same list. `watchdog` may be null.
void run_cases(const std::vector<Case>& cases, int rank, int nranks, ncclComm_t comm,
               Watchdog* watchdog);

// The same, but the calling thread drives all ranks. Each case is one group.
void run_cases_in_groups(const std::vector<Case>& cases, const std::vector<ncclComm_t>& comms);

}  // namespace weft::test
