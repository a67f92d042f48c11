// See ipc_memory.h.
#include "src/exec/cuda/ipc_memory.h"

#include <cstring>
#include <mutex>

namespace weft::cuda {

cudaError_t open_ipc(const char* handle, void** mapped) {
  static std::mutex one_by_one;
  cudaIpcMemHandle_t copy;
  std::memcpy(&copy, handle, sizeof copy);
  const std::lock_guard lock(one_by_one);
  const cudaError_t error = cudaIpcOpenMemHandle(mapped, copy, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace weft::cuda
