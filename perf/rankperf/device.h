// What rankperf does with the GPU beside the collectives.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "perf/common/errors.h"

namespace weft::perf::rankperf {

using perf::check;
// Throws std::runtime_error that names the call.
void check(cudaError_t error, const char* call);

// Writes input_value() to all elements.
void fill(float* memory, size_t count, int rank, cudaStream_t stream);

}  // namespace weft::perf::rankperf
