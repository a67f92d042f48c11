// See device_memory.h.
#include "src/exec/cuda/device_memory.h"

#include <cuda_runtime.h>

#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {

DeviceMemory::DeviceMemory(int device, uint64_t* sent, uint64_t* signals)
    : device_(device), sent_(sent), signals_(signals) {}

DeviceMemory::~DeviceMemory() {
  DeviceStore::instance().free_when_quiet(device_, [pinned = std::move(pinned_)] {
    for (const Pinned& one : pinned) cudaHostUnregister(one.memory);
    cudaGetLastError();
  });
}

// Captures of other threads do not forbid this thread anything.
void DeviceMemory::enter() {
  check(cudaSetDevice(device_), "cudaSetDevice");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

void DeviceMemory::pin(std::byte* memory, size_t bytes, std::shared_ptr<const void> owner) {
  const SetupScope scope(device_);
  check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister");
  pinned_.push_back({memory, std::move(owner)});
}

void DeviceMemory::copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.stream()),
        "copying for another host");
  check(cudaStreamSynchronize(stream_.stream()), "copying for another host");
}

void DeviceMemory::read(std::byte* to, const std::byte* from, size_t bytes) {
  copy(to, from, bytes);
}

void DeviceMemory::write(std::byte* to, const std::byte* from, size_t bytes) {
  copy(to, from, bytes);
}

// Writes so far are complete.
void DeviceMemory::signal(int source) {
  __atomic_store_n(signals_ + source, signals_[source] + 1, __ATOMIC_SEQ_CST);
}

}  // namespace weft::cuda
