// Groups. A thread's calls between ncclGroupStart and the outermost ncclGroupEnd are launched
// together.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/handle.h"
#include "src/comm/init_job.h"
#include "src/comm/one_sided.h"

namespace weft {

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

// Launches the call, or adds it to the group.
ncclResult_t submit(ncclComm& comm, const Call& call);
// The same for several calls, which are a group of their own.
ncclResult_t submit(ncclComm& comm, std::span<const Call> calls);
// Host mode: runs calls that were accepted before, on this thread.
void run_accepted(ncclComm& comm, std::span<const Call> calls);
// The same for one-sided calls. In a group they come after all others. In host mode writes and
// signals of a group come before its waits.
ncclResult_t submit(ncclComm& comm, OneSidedCall call);

// Throws Error if a call was started (weftStart) and runs: one thread at a time makes calls.
void check_free(const ncclComm& comm);
// Host mode: returns when no call of a non-blocking communicator is under way any more.
void wait_for_background_calls(const ncclComm& comm);

// Work on an existing communicator in which all its ranks take part, such as registering a window.
// Runs at once, or at the end of the group: communicators in parallel, the work of one in order.
void run_together(ncclComm& comm, std::function<void()> work);

}  // namespace weft
