// Where test buffers live and how a call is waited for: host memory in host mode; on a GPU machine,
// pinned memory that host and GPU reach at the same address, and a stream per communicator.
#pragma once

#include <cstddef>

#include "nccl.h"

namespace weft::test {

// False when the library is in host mode.
bool on_gpu();

// Memory that both sides reach. On GPUs it comes from a pool made at the start: allocating while
// another rank's kernel waits for this rank would deadlock.
void* shared_memory(size_t bytes);
void free_shared_memory(void* pointer);

cudaStream_t stream_of(ncclComm_t comm);
// Waits for what was launched on the communicator's stream. "" or what CUDA says.
const char* finish(ncclComm_t comm);

}  // namespace weft::test
