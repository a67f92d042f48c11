// Driver functions, looked up by name: the library must load on machines without a driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace weft::cuda {

// nullptr if the driver lacks the function. Example: driver<decltype(cuMemMap)>("cuMemMap").
template <typename Function>
Function* driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace weft::cuda
