// Ranks of one communicator for `weft run` and `weft calibrate`: threads of this process, or
// processes.
#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.h"
#include "src/comm/unique_id.h"

namespace weft {

// The result of a rank. Plain values: it may come from another process.
struct RankReport {
  double time_us[2] = {0, 0};  // out of place, in place; 0: not run
  uint64_t wrong[2] = {0, 0};  // elements
  char error[1024] = {};       // empty: none
};

// Runs all ranks and waits for them. `work` gets its rank and the id of the rendezvous. An
// exception becomes an error in the rank's report. With `as_processes`, only for programs that have
// no threads yet.
std::vector<RankReport> run_team(
    int nranks, bool as_processes,
    const std::function<RankReport(int rank, const UniqueId& id)>& work);

// Runs one rank's part of one call in host mode to its end. Throws errors.
void run_on_host(Communicator& comm, host::Batch& batch, const Call& call);

}  // namespace weft
