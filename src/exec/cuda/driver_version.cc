// Versions of the driver and the toolkit, for the first line of the log.
#include <cuda_runtime_api.h>

#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_version() { return CUDART_VERSION; }

}  // namespace weft::cuda
