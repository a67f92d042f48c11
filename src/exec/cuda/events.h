// Events that order streams.
#pragma once

#include <cuda_runtime.h>

#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {

inline void follow(cudaStream_t later, cudaStream_t earlier, cudaEvent_t event) {
  check(cudaEventRecord(event, earlier), "cudaEventRecord");
  check(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
}

}  // namespace weft::cuda
