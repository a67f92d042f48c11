// A rank's windows in device memory, as kernels with NCCL's device headers read them. Users of this
// header need no CUDA header.
#pragma once

#include <cstddef>
#include <memory>

#include "src/exec/cuda/device_api.h"

namespace weft::cuda {

// One thread at a time.
class DeviceWindows {
 public:
  explicit DeviceWindows(int device);
  ~DeviceWindows();
  DeviceWindows(const DeviceWindows&) = delete;
  DeviceWindows& operator=(const DeviceWindows&) = delete;

  // Returns the window's address in device memory. [user, user + size): what kernels look up.
  void* add(const DeviceWindow& window, const void* user, size_t size);
  void update(void* window, const DeviceWindow& content);
  void remove(void* window);
  // The first table of windows.
  DeviceWindowTable* table();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Memory for a device communicator's own buffers, zero. From allocate().
void* allocate_zeroed(int device, size_t bytes);

}  // namespace weft::cuda
