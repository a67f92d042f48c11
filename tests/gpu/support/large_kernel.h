// A kernel whose thread blocks need a whole SM each: all the shared memory that a block can have.
#pragma once

#include <cuda_runtime.h>

namespace weft::test {

// Adds the number of its blocks to *count. Run it once while nothing waits: its code is loaded
// then.
cudaError_t launch_large_kernel(int blocks, unsigned* count, cudaStream_t stream);
// Bytes of shared memory per block on device 0; 227 KiB on an H200.
int large_kernel_bytes();

}  // namespace weft::test
