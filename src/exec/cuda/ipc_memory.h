// Memory of other processes, mapped by its CUDA IPC handle.
#pragma once

#include <cuda_runtime_api.h>

namespace weft::cuda {

// `handle`: 64 bytes. cudaErrorAlreadyMapped: what was at that place before is still mapped in this
// process, so it may work later.
//
// Two threads that open the same handle at once make the driver say that it is mapped already (seen
// with driver 580: two ranks of one process, 1 in 3 starts). So a process opens them one by one.
cudaError_t open_ipc(const char* handle, void** mapped);

}  // namespace weft::cuda
