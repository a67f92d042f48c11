// See device.h.
#include <algorithm>
#include <limits>
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

double copy_gbps(size_t bytes) {
  void* from = nullptr;
  void* to = nullptr;
  check(cudaMalloc(&from, bytes), "cudaMalloc");
  check(cudaMalloc(&to, bytes), "cudaMalloc");
  cudaEvent_t began = nullptr, ended = nullptr;
  check(cudaEventCreate(&began), "cudaEventCreate");
  check(cudaEventCreate(&ended), "cudaEventCreate");
  float best_ms = std::numeric_limits<float>::max();
  for (int i = 0; i < 10; ++i) {
    check(cudaEventRecord(began), "cudaEventRecord");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
    check(cudaEventRecord(ended), "cudaEventRecord");
    check(cudaEventSynchronize(ended), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, began, ended), "cudaEventElapsedTime");
    best_ms = std::min(best_ms, ms);
  }
  check(cudaEventDestroy(began), "cudaEventDestroy");
  check(cudaEventDestroy(ended), "cudaEventDestroy");
  check(cudaFree(from), "cudaFree");
  check(cudaFree(to), "cudaFree");
  return 2.0 * static_cast<double>(bytes) / best_ms / 1e6;
}

}  // namespace weft::perf::rankperf
