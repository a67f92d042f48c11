// What ranks of this process use on GPUs and CUDA frees only when kernels are done. To free it
// while a kernel waits for a peer can be to wait for that kernel, in a lock of the driver that the
// peer needs for its launch. So where ranks share this process, nothing is freed while any of them
// is there: it is kept for the next communicator.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::cuda {

// The one of the process; any thread. A process with one rank per communicator frees at once: its
// kernels wait for other processes only, and its memory may be wanted by others.
class DeviceStore {
 public:
  enum class Kind : uint8_t { kDeviceMemory, kHostMemory, kStream, kEvent };
  static DeviceStore& instance();

  // For as long as a rank may have kernels. When the last one has gone, what was kept is freed.
  class Visit {
   public:
    Visit() { instance().enter(); }
    ~Visit() { instance().leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
  };
  // Some communicator has several ranks in this process.
  void expect_several();
  // For what cannot be used again. `free` runs with that device current.
  void free_when_quiet(int device, std::function<void()> free);

 private:
  friend class PooledResource;
  struct Item {
    Kind kind = Kind::kDeviceMemory;
    int device = 0;
    size_t bytes = 0;
    void* handle = nullptr;
  };
  void enter();
  void leave();
  Item take(Kind kind, size_t bytes);
  void give_back(const Item& item);
  static void destroy(const Item& item);

  std::mutex mutex_;
  int visitors_ = 0;
  bool several_ = false;
  std::vector<Item> kept_;
  std::vector<std::pair<int, std::function<void()>>> later_;
};

// A thing of the store, for the device that is current when it is made. Host memory is pinned,
// mapped and portable; streams do not block, events take no time. What memory holds is not defined.
class PooledResource {
 public:
  PooledResource() = default;
  explicit PooledResource(DeviceStore::Kind kind, size_t bytes = 0)
      : item_(DeviceStore::instance().take(kind, bytes)) {}
  PooledResource(PooledResource&& other) noexcept
      : item_(std::exchange(other.item_, {})), reusable_(other.reusable_) {}
  PooledResource& operator=(PooledResource&& other) noexcept {
    std::swap(item_, other.item_);
    std::swap(reusable_, other.reusable_);
    return *this;
  }
  ~PooledResource();

  void* get() const { return item_.handle; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(item_.handle); }
  cudaEvent_t event() const { return static_cast<cudaEvent_t>(item_.handle); }
  // Other processes may still write there: to be freed, not to be used again.
  void forbid_reuse() { reusable_ = false; }

 private:
  DeviceStore::Item item_;
  bool reusable_ = true;
};

}  // namespace weft::cuda
