// See device.h.
#include <stdexcept>
#include <string>

#include "perf/rankperf/collectives.h"
#include "perf/rankperf/device.h"

namespace weft::perf::rankperf {
namespace {

__global__ void fill_kernel(float* memory, size_t count, int rank) {
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += threads)
    memory[i] = input_value(i, rank);
}

}  // namespace

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

void fill(float* memory, size_t count, int rank, cudaStream_t stream) {
  fill_kernel<<<64, 256, 0, stream>>>(memory, count, rank);
  check(cudaGetLastError(), "fill");
}

}  // namespace weft::perf::rankperf
