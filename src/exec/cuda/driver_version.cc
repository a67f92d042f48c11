// The driver's version, for the first line of the log.
#include <cuda_runtime_api.h>

#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

}  // namespace weft::cuda
