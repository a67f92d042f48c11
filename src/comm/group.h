// Groups. A thread's calls between ncclGroupStart and the outermost ncclGroupEnd are launched
// together.
#pragma once

#include <functional>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/handle.h"

namespace weft {

// An init, split or shrink that is under way. On failure *out is set to NULL if the communicator
// blocks.
struct InitJob {
  ncclComm* comm = nullptr;
  ncclComm** out = nullptr;
  std::function<void()> work;
};

// The time of a group by the cost model.
struct GroupEstimate {
  size_t calls = 0;
  double us = 0;
  bool known = false;  // there is an estimate for every call
};

// These functions act on the calling thread's group.
bool in_group();
void group_start();
ncclResult_t group_end();
// Forgets the group's calls instead of launching them.
GroupEstimate group_discard();
// An error inside a group makes the whole group fail.
void note_group_error(ncclResult_t code, const std::string& text);

void add_to_group(InitJob job);
// Several jobs run in parallel. Waits for the jobs of blocking communicators.
ncclResult_t run_init_jobs(std::vector<InitJob> jobs);

// Launches the call, or adds it to the group.
ncclResult_t submit(ncclComm& comm, const Call& call);

}  // namespace weft
