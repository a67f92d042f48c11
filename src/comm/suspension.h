// Suspended communicators: their memory is given back until they are resumed. All ranks suspend and
// resume together. A suspended communicator has no connections: its parts end, and are made anew.
#pragma once

#include "src/comm/handle.h"

namespace weft {

// Inside a group they wait for the outermost ncclGroupEnd. They return ncclSuccess, or
// ncclInProgress for non-blocking communicators, and throw Error.
ncclResult_t suspend(ncclComm& comm);
ncclResult_t resume(ncclComm& comm);

// The memory will not be registered when the communicator wakes up. False if it is not suspended.
bool forget_registered(ncclComm& comm, const void* base);

// The communicator ends for good. Nobody will join what was prepared for it.
void forget(ncclComm& comm);

// The value of ncclCommMemStats. In host mode, where buffers are host memory, its own host memory.
uint64_t memory_statistic(ncclComm& comm, ncclCommMemStat_t statistic);

}  // namespace weft
