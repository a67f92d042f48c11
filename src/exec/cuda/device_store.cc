// See device_store.h.
#include "src/exec/cuda/device_store.h"

#include <memory>

#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {
namespace {

// Nothing here throws, because destructors call it.
void run_on(int device, const std::function<void()>& free) {
  const SetupScope scope(device, std::nothrow);
  free();
  cudaGetLastError();
}

}  // namespace

DeviceStore& DeviceStore::instance() {
  static DeviceStore& store = *std::make_unique<DeviceStore>().release();
  return store;
}

void DeviceStore::enter() {
  std::lock_guard lock(mutex_);
  visitors_++;
}

void DeviceStore::leave() {
  std::vector<Item> items;
  std::vector<std::pair<int, std::function<void()>>> later;
  {
    std::lock_guard lock(mutex_);
    if (--visitors_ > 0) return;
    several_ = false;
    items.swap(kept_);
    later.swap(later_);
  }
  for (const auto& [device, free] : later) run_on(device, free);
  for (const Item& item : items) destroy(item);
}

void DeviceStore::expect_several() {
  std::lock_guard lock(mutex_);
  several_ = true;
}

void DeviceStore::free_when_quiet(int device, std::function<void()> free) {
  {
    std::lock_guard lock(mutex_);
    if (several_) {
      later_.emplace_back(device, std::move(free));
      return;
    }
  }
  run_on(device, free);
}

// Memory of up to twice the size is accepted.
DeviceStore::Item DeviceStore::take(Kind kind, size_t bytes) {
  Item item{kind, 0, bytes, nullptr};
  check(cudaGetDevice(&item.device), "cudaGetDevice");
  {
    std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it)
      if (it->kind == kind && it->device == item.device && it->bytes >= bytes &&
          it->bytes / 2 <= bytes && (best == kept_.end() || it->bytes < best->bytes))
        best = it;
    if (best != kept_.end()) {
      item = *best;
      kept_.erase(best);
      return item;
    }
  }
  switch (kind) {
    case Kind::kDeviceMemory:
      check(cudaMalloc(&item.handle, bytes), "cudaMalloc");
      break;
    case Kind::kHostMemory:
      check(cudaHostAlloc(&item.handle, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
            "cudaHostAlloc");
      break;
    case Kind::kStream: {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      item.handle = stream;
      break;
    }
    case Kind::kEvent: {
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      item.handle = event;
      break;
    }
  }
  return item;
}

void DeviceStore::give_back(const Item& item) {
  {
    std::lock_guard lock(mutex_);
    if (several_) {
      kept_.push_back(item);
      return;
    }
  }
  destroy(item);
}

void DeviceStore::destroy(const Item& item) {
  run_on(item.device, [&] {
    switch (item.kind) {
      case Kind::kDeviceMemory:
        cudaFree(item.handle);
        break;
      case Kind::kHostMemory:
        cudaFreeHost(item.handle);
        break;
      case Kind::kStream:
        cudaStreamDestroy(static_cast<cudaStream_t>(item.handle));
        break;
      case Kind::kEvent:
        cudaEventDestroy(static_cast<cudaEvent_t>(item.handle));
        break;
    }
  });
}

PooledResource::~PooledResource() {
  if (item_.handle == nullptr) return;
  DeviceStore& store = DeviceStore::instance();
  if (reusable_) {
    store.give_back(item_);
  } else {
    store.free_when_quiet(item_.device, [item = item_] { DeviceStore::destroy(item); });
  }
}

}  // namespace weft::cuda
