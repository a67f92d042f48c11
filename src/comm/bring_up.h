// Makes the communicator of a handle, for inits, children and resumed communicators.
#pragma once

#include <functional>

#include "src/comm/group.h"
#include "src/comm/handle.h"
#include "src/comm/unique_id.h"

namespace weft {

// Logs once per process: the version, and the effect of each environment variable that is set.
void announce(int rank);

// Makes the communicator and puts it into its handle. Runs on the caller's thread or on a thread of
// its own. `prepare` runs before others can use it. Throws Error.
void bring_up(ncclComm& comm, const UniqueId& id, const char* function, const Branch& branch = {},
              const std::function<void(Communicator&)>& prepare = nullptr);

// Runs the job now, at the end of the group, or in the background if nobody waits for it.
ncclResult_t start(InitJob job);

}  // namespace weft
