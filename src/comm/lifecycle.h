// Makes and ends communicators. Inside a group, init, split and shrink wait for the outermost
// ncclGroupEnd.
#pragma once

#include <vector>

#include "src/comm/handle.h"
#include "src/comm/unique_id.h"

namespace weft {

// These return ncclSuccess, or ncclInProgress for non-blocking communicators. They throw Error.
// They set *out at once, and reset it to NULL if a blocking init fails.
ncclResult_t init_rank(ncclComm** out, const UniqueId& id, int rank, int nranks,
                       const CommConfig& config);
ncclResult_t split(ncclComm& parent, int color, int key, ncclComm** out,
                   const ncclConfig_t* config);
ncclResult_t shrink(ncclComm& parent, const std::vector<int>& excluded, ncclComm** out,
                    const ncclConfig_t* config, bool abort_parent);

void finalize(ncclComm& comm);
void destroy(ncclComm& comm);
void abort(ncclComm& comm);
void revoke(ncclComm& comm);

// The error state that ncclCommGetAsyncError reports.
ncclResult_t async_error(ncclComm& comm);

}  // namespace weft
