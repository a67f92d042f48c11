// Makes and ends communicators. Inside a group, init, split, shrink and grow wait for the outermost
// ncclGroupEnd.
#pragma once

#include <vector>

#include "src/comm/handle.h"
#include "src/comm/unique_id.h"

namespace weft {

// These return ncclSuccess, or ncclInProgress for non-blocking communicators. They throw Error.
// `function`: its name in the API, for the log. It sets *out at once, and resets it to NULL if a
// blocking init fails.
ncclResult_t init_rank(ncclComm** out, const UniqueId& id, int rank, int nranks,
                       const CommConfig& config, const char* function, const Branch& branch = {});
// Children. The parent's configuration says whether callers wait, and the parent's state tells when
// a child is done. Until then *out is NULL.
ncclResult_t split(ncclComm& parent, int color, int key, ncclComm** out,
                   const ncclConfig_t* config);
ncclResult_t shrink(ncclComm& parent, const std::vector<int>& excluded, ncclComm** out,
                    const ncclConfig_t* config, bool abort_parent);

// Growing: the id for ncclCommGrow of a rank of `parent`, and the call itself. `id`: nullptr,
// except on the rank that made it.
UniqueId grow_id(ncclComm& parent);
ncclResult_t grow(ncclComm& parent, int nranks, const UniqueId* id, ncclComm** out,
                  const ncclConfig_t* config);

ncclResult_t finalize(ncclComm& comm);
void destroy(ncclComm& comm);
void abort(ncclComm& comm);
void revoke(ncclComm& comm);

// The error state that ncclCommGetAsyncError reports.
ncclResult_t async_error(ncclComm& comm);

}  // namespace weft
