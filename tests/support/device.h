// The memory of test buffers, and how tests wait for a call. In host mode buffers are host memory.
// On a GPU machine they are pinned memory, at the same address for host and GPU, and each
// communicator has a stream.
#pragma once

#include <cstddef>

#include "nccl.h"

namespace weft::test {

// False when the library is in host mode.
bool on_gpu();

// Memory that host and GPU both reach. On GPUs it comes from a pool made at the start: allocating
// while another rank's kernel waits for this rank would deadlock.
void* shared_memory(size_t bytes);
void free_shared_memory(void* pointer);

cudaStream_t stream_of(ncclComm_t comm);
// Waits for the work on the communicator's stream. "" or CUDA's error text.
const char* finish(ncclComm_t comm);

}  // namespace weft::test
