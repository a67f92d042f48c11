// Work that makes communicators, puts them to sleep or wakes them. It runs at once, at the end of a
// group, or in the background.
#pragma once

#include <functional>
#include <vector>

#include "src/comm/handle.h"

namespace weft {

struct InitJob {
  // Its configuration says whether callers wait. If they do not, its state tells of the progress.
  ncclComm* reports = nullptr;
  ncclComm* made = nullptr;  // the new communicator; nullptr: none
  // Gets the new communicator if it reports itself at once, otherwise when the work is done. NULL
  // if blocking work fails.
  ncclComm** out = nullptr;
  std::function<void()> work;
  std::function<void()> undo = nullptr;  // the work will never run
};

// Several jobs run in parallel. Waits for the jobs of blocking communicators. Throws Error.
ncclResult_t run_init_jobs(std::vector<InitJob> jobs);

// The work of these will never run.
void discard(const std::vector<InitJob>& jobs);

}  // namespace weft
