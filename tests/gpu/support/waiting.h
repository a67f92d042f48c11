// Checks for tests in which a kernel waits for a rank that never calls.
#pragma once

#include <chrono>
#include <string>

#include "nccl.h"

namespace weft::test {

// The error that ncclCommGetAsyncError returns once it is neither success nor in progress.
// ncclSuccess if there is none within `limit`.
ncclResult_t async_error_within(ncclComm_t comm, std::chrono::milliseconds limit);

// Calls ncclCommAbort in its own thread. It must succeed within a few seconds.
void expect_abort_succeeds(ncclComm_t comm);

// The stream must finish within a few seconds, and must work afterwards.
void expect_usable(cudaStream_t stream, char* memory);

// New communicators on the device must work.
void expect_new_communicators_work();

}  // namespace weft::test
