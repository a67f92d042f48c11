// The device interface in builds with CUDA: GPUs if the library uses them, else host memory.
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "weft.h"

// These programs also measure other libraries, which do not have it and always use GPUs.
#pragma weak weftHostMode

namespace weft::perf::device {
namespace {

bool on_gpu() {
  static const bool gpu = weftHostMode == nullptr || weftHostMode() == 0;
  return gpu;
}

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw LibraryError(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace

const char* unavailable() {
  // Every rank has a stream, and copies use one more. With fewer hardware queues than streams, a
  // waiting kernel can block the kernel that it waits for. CUDA reads the variable when it makes
  // the context, so it must be set before the first CUDA call.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return nullptr;
}

const char* name() {
  static const std::string text = [] {
    cudaDeviceProp properties;
    if (!on_gpu() || cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
      return std::string("host memory");
    return std::string(properties.name);
  }();
  return text.c_str();
}

void select(int global_rank) {
  int devices = 0;
  if (!on_gpu()) return;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check_cuda(cudaSetDevice(global_rank % devices), "cudaSetDevice");
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
  return memory;
}

void release(void* memory) { check(ncclMemFree(memory), "ncclMemFree"); }

void* allocate_plain(size_t bytes) {
  if (!on_gpu()) return std::make_unique<std::byte[]>(bytes).release();
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

void copy_in(void* device, const void* host, size_t bytes) {
  if (!on_gpu()) {
    std::memcpy(device, host, bytes);
  } else {
    check_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
}

void copy_out(void* host, const void* device, size_t bytes) {
  if (!on_gpu()) {
    std::memcpy(host, device, bytes);
  } else {
    check_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
}

void fill(void* device, unsigned char value, size_t bytes) {
  if (!on_gpu()) {
    std::memset(device, value, bytes);
  } else {
    check_cuda(cudaMemset(device, value, bytes), "cudaMemset");
    // Does not wait for the whole device: another rank's kernel may wait for this thread.
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
}

void synchronize(cudaStream_t stream) {
  if (on_gpu()) check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// Streams that threads first use at the same time may get the same hardware queue, and ranks that
// share a GPU then wait for each other for ever (src/exec/stream_gate.h). So one after the other is
// used here.
cudaStream_t stream(int, bool null_stream) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cudaStream_t made = nullptr;
  if (!on_gpu() || null_stream) return made;
  check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
  void* some = nullptr;
  check_cuda(cudaMalloc(&some, 256), "cudaMalloc");
  check_cuda(cudaMemsetAsync(some, 0, 256, made), "cudaMemsetAsync");
  check_cuda(cudaStreamSynchronize(made), "cudaStreamSynchronize");
  check_cuda(cudaFree(some), "cudaFree");
  return made;
}

size_t memory_limit() {
  if (on_gpu()) {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free / 4 * 3;
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) / 4 * 3
                               : SIZE_MAX;
}

}  // namespace weft::perf::device
