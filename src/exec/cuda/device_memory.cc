// See device_memory.h.
#include "src/exec/cuda/device_memory.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {

DeviceMemory::DeviceMemory(const SignalWords& words, uint64_t* sent)
    : device_(words.device),
      signals_(words.signals),
      sent_(sent),
      kept_counts_(DeviceStore::Kind::kHostMemory,
                   static_cast<size_t>(words.nranks) * sizeof(uint64_t)),
      counts_(static_cast<uint64_t*>(kept_counts_.get())) {
  std::fill_n(counts_, words.nranks, 0);
}

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

void DeviceMemory::signal(int source) {
  counts_[source]++;
  copy(signals_ + source, counts_ + source, sizeof(uint64_t));
}

}  // namespace weft::cuda
