// A pool of CUDA resources of this process: memory, streams and events. cudaFree may block until
// running kernels finish while it holds a driver lock. If a kernel waits for a peer that needs that
// lock to launch, both hang. So if ranks share this process, the pool frees nothing while any of
// them exists. It keeps resources for the next communicator.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::cuda {

// One per process; thread-safe. A process with one rank per communicator frees at once. Its kernels
// wait only for other processes, and other users may want the memory.
class DeviceStore {
 public:
  enum class Kind : uint8_t { kDeviceMemory, kHostMemory, kStream, kEvent };
  static DeviceStore& instance();

  // Lives as long as a rank may have kernels. The pool is freed when the last visit ends.
  class Visit {
   public:
    Visit() { instance().enter(); }
    ~Visit() { instance().leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
  };
  // Some communicator has several ranks in this process.
  void expect_several();
  // For resources that cannot be reused. `free` runs with `device` current.
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

// A resource from the store, on the device that is current at construction. Host memory is pinned,
// mapped and portable. Streams are non-blocking, events record no timing. The contents of memory
// are undefined.
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
  size_t bytes() const { return item_.bytes; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(item_.handle); }
  cudaEvent_t event() const { return static_cast<cudaEvent_t>(item_.handle); }
  // Other processes may still write to this memory, so it is freed and not reused.
  void forbid_reuse() { reusable_ = false; }

 private:
  DeviceStore::Item item_;
  bool reusable_ = true;
};

}  // namespace weft::cuda
