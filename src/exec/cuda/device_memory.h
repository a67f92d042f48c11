// A rank's memory on its GPU, for one-sided writes between hosts (remote_memory.h). Copies use a
// stream of their own. Signals do not: a stream may share a hardware queue with a kernel that waits
// for the signal.
#pragma once

#include <vector>

#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/one_sided_launcher.h"

namespace weft::cuda {

class DeviceMemory : public RemoteMemory {
 public:
  // `sent`, `signals`: pinned, zero, a word per rank. The device is current.
  DeviceMemory(int device, uint64_t* sent, uint64_t* signals);
  ~DeviceMemory() override;

  void enter() override;
  void pin(std::byte* memory, size_t bytes, std::shared_ptr<const void> owner) override;
  void read(std::byte* to, const std::byte* from, size_t bytes) override;
  void write(std::byte* to, const std::byte* from, size_t bytes) override;
  void signal(int source) override;
  uint64_t* sent() override { return sent_; }

 private:
  struct Pinned {
    std::byte* memory = nullptr;
    std::shared_ptr<const void> owner;
  };
  // Returns when it is done.
  void copy(void* to, const void* from, size_t bytes);

  const int device_;
  uint64_t *const sent_, *const signals_;
  const PooledResource stream_{DeviceStore::Kind::kStream};
  std::vector<Pinned> pinned_;
};

}  // namespace weft::cuda
