// See rings.h.
#include "src/exec/cuda/rings.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {
namespace {

// Ranks of one process share FIFOs. Each is pinned once, until the last rank is done with it.
class PinnedMemory {
 public:
  static PinnedMemory& instance() {
    static PinnedMemory& all = *std::make_unique<PinnedMemory>().release();
    return all;
  }
  void pin(void* memory, size_t bytes) {
    std::lock_guard lock(mutex_);
    if (users_[memory]++ > 0) return;
    const cudaError_t error =
        cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error == cudaSuccess) return;
    users_.erase(memory);
    check(error, "pinning the FIFOs to other hosts");
  }
  void unpin(void* memory) {
    std::lock_guard lock(mutex_);
    if (--users_[memory] > 0) return;
    users_.erase(memory);
    cudaHostUnregister(memory);
    cudaGetLastError();
  }

 private:
  std::mutex mutex_;
  std::map<void*, int> users_;
};

template <typename T>
T* on_device(T* host) {
  void* device = nullptr;
  check(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
  return static_cast<T*>(device);
}

}  // namespace

Rings::Rings(std::span<const SendPort> sends, std::span<const RecvPort> receives,
             std::vector<std::shared_ptr<const void>> owners, cudaStream_t stream)
    : owners_(std::move(owners)) {
  // Control and data are contiguous.
  const auto translated = [&](auto port) {
    if (port.control == nullptr) return port;
    auto* begin = reinterpret_cast<std::byte*>(port.control);
    PinnedMemory::instance().pin(begin, static_cast<size_t>(port.data + port.size - begin));
    pinned_.push_back(begin);
    std::byte* device = on_device(begin);
    port.data = device + (port.data - begin);
    port.control = reinterpret_cast<FifoControl*>(device);
    return port;
  };
  std::vector<SendPort> send_ports;
  std::vector<RecvPort> receive_ports;
  for (const SendPort& port : sends) {
    send_ports.push_back(translated(port));
    send_ports.back().lending = Lending::kNever;
    if (port.stream != nullptr && port.lending == Lending::kPointer)
      send_ports.back().stream_data = reinterpret_cast<uint64_t>(port.data);
  }
  for (const RecvPort& port : receives) {
    receive_ports.push_back(translated(port));
    receive_ports.back().direct = false;
  }
  const size_t send_bytes = send_ports.size() * sizeof(SendPort),
               receive_bytes = receive_ports.size() * sizeof(RecvPort);
  const size_t bytes = send_bytes + receive_bytes + (kMaxRingJobs + 1) * 8;
  memory_ = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  auto* at = static_cast<std::byte*>(memory_.get());
  sends_ = reinterpret_cast<SendPort*>(at);
  receives_ = reinterpret_cast<RecvPort*>(at + send_bytes);
  progress_ = reinterpret_cast<uint64_t*>(at + send_bytes + receive_bytes);
  leaving_ = reinterpret_cast<uint32_t*>(progress_ + kMaxRingJobs);
  const PooledResource pinned(DeviceStore::Kind::kHostMemory, bytes);
  auto* image = static_cast<std::byte*>(pinned.get());
  std::fill_n(image, bytes, std::byte{});
  std::copy_n(reinterpret_cast<const std::byte*>(send_ports.data()), send_bytes, image);
  std::copy_n(reinterpret_cast<const std::byte*>(receive_ports.data()), receive_bytes,
              image + send_bytes);
  check(cudaMemcpyAsync(at, image, bytes, cudaMemcpyHostToDevice, stream), "writing the rings");
  check(cudaStreamSynchronize(stream), "writing the rings");
}

Rings::~Rings() {
  int device = 0;
  cudaGetDevice(&device);
  DeviceStore::instance().free_when_quiet(
      device, [pinned = std::move(pinned_), owners = std::move(owners_)] {
        for (void* memory : pinned) PinnedMemory::instance().unpin(memory);
      });
}

}  // namespace weft::cuda
