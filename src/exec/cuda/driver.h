// The driver's own functions, asked for by name: the library must load where there is no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace weft::cuda {

// nullptr when the driver does not have it: driver<decltype(cuMemMap)>("cuMemMap").
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
