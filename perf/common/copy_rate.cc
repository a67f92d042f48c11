// See copy_rate.h.
#include "perf/common/copy_rate.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace weft::perf {
namespace {

void must(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

}  // namespace

double copy_gbps(size_t bytes) {
  void* from = nullptr;
  void* to = nullptr;
  must(cudaMalloc(&from, bytes), "cudaMalloc");
  must(cudaMalloc(&to, bytes), "cudaMalloc");
  cudaEvent_t began = nullptr, ended = nullptr;
  must(cudaEventCreate(&began), "cudaEventCreate");
  must(cudaEventCreate(&ended), "cudaEventCreate");
  float best_ms = std::numeric_limits<float>::max();
  for (int i = 0; i < 10; ++i) {
    must(cudaEventRecord(began), "cudaEventRecord");
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
    must(cudaEventRecord(ended), "cudaEventRecord");
    must(cudaEventSynchronize(ended), "cudaEventSynchronize");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, began, ended), "cudaEventElapsedTime");
    best_ms = std::min(best_ms, ms);
  }
  must(cudaEventDestroy(began), "cudaEventDestroy");
  must(cudaEventDestroy(ended), "cudaEventDestroy");
  must(cudaFree(from), "cudaFree");
  must(cudaFree(to), "cudaFree");
  return 2.0 * static_cast<double>(bytes) / best_ms / 1e6;
}

}  // namespace weft::perf
