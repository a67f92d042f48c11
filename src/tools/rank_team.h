// Ranks of one communicator for `weft run` and `weft calibrate`, as threads of this process or as
// processes of their own.
#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.h"
#include "src/comm/unique_id.h"

namespace weft {

// What a rank found out. Plain values: it may come out of another process.
struct RankReport {
  double time_us[2] = {0, 0};  // out of place, in place; 0: not run
  uint64_t wrong[2] = {0, 0};  // elements
  char error[1024] = {};       // empty: none
};

// Plays every rank and waits for all. The work gets its rank and how to reach the others; what it
// throws becomes an error in its report. Not for processes that have threads already when
// `as_processes` is set.
std::vector<RankReport> run_team(
    int nranks, bool as_processes,
    const std::function<RankReport(int rank, const UniqueId& id)>& work);

// One rank's part of one call in host mode, to its end; throws what goes wrong.
void run_on_host(Communicator& comm, host::Batch& batch, const Call& call);

}  // namespace weft
