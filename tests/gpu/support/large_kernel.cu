// See large_kernel.h.
#include "tests/gpu/support/large_kernel.h"

namespace weft::test {
namespace {

__global__ void fill_shared_memory(unsigned* count, int bytes) {
  extern __shared__ unsigned char memory[];
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x))
    memory[i] = static_cast<unsigned char>(i);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(count, memory[1]);
}

}  // namespace

int large_kernel_bytes() {
  int bytes = 0;
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  return bytes;
}

cudaError_t launch_large_kernel(int blocks, unsigned* count, cudaStream_t stream) {
  const int bytes = large_kernel_bytes();
  const cudaError_t allowed =
      cudaFuncSetAttribute(fill_shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  fill_shared_memory<<<static_cast<unsigned>(blocks), 256, static_cast<size_t>(bytes), stream>>>(
      count, bytes);
  return cudaGetLastError();
}

}  // namespace weft::test
