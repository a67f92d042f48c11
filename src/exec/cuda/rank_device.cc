// See rank_device.h.
#include "src/exec/cuda/rank_device.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

int device_count() {
  if (!available()) return 0;
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

RankDevice::RankDevice(int device, size_t bytes)
    : device_(device), size_(std::max<size_t>(bytes, 4)) {
  make_current();
  data_ = allocate(size_);
  void* staging = nullptr;
  check(cudaHostAlloc(&staging, kStagingBytes, cudaHostAllocDefault), "cudaHostAlloc");
  staging_ = static_cast<std::byte*>(staging);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  const size_t first = std::min(kStagingBytes, size_);
  check(cudaMemsetAsync(data_, 0, size_, stream_), "cudaMemsetAsync");
  download(0, first);
  upload(0, first);
}

RankDevice::~RankDevice() {
  const DeviceScope scope(device_, std::nothrow);
  forget_graph();
  cudaStreamDestroy(stream_);
  cudaFreeHost(staging_);
  release(data_);
}

void RankDevice::make_current() const { check(cudaSetDevice(device_), "cudaSetDevice"); }

void RankDevice::upload(size_t at, size_t bytes) {
  check(cudaMemcpyAsync(static_cast<std::byte*>(data_) + at, staging_, bytes,
                        cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
  wait();
}

void RankDevice::download(size_t at, size_t bytes) {
  check(cudaMemcpyAsync(staging_, static_cast<std::byte*>(data_) + at, bytes,
                        cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
  wait();
}

void RankDevice::wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

void RankDevice::record(const std::function<void()>& work) {
  forget_graph();
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of a capture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "end of a capture");
  cudaGraphExec_t instance = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&instance, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "cudaGraphInstantiate");
  graph_ = instance;
  check(cudaGraphUpload(instance, stream_), "cudaGraphUpload");
  wait();
}

void RankDevice::replay() {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream_), "cudaGraphLaunch");
}

void RankDevice::forget_graph() noexcept {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
  graph_ = nullptr;
}

}  // namespace weft::cuda
