// See device_windows.h.
#include "src/exec/cuda/device_windows.h"

#include <cuda_runtime.h>

#include <cstring>
#include <vector>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

struct DeviceWindows::State {
  // A table in device memory and its copy here.
  struct Table {
    PooledResource memory{DeviceStore::Kind::kDeviceMemory, sizeof(DeviceWindowTable)};
    DeviceWindowTable copy;
    bool changed = true;  // since the last upload
  };
  const int device;
  const PooledResource stream{DeviceStore::Kind::kStream};
  // Copies from pageable memory would wait behind kernels.
  const PooledResource staging{DeviceStore::Kind::kHostMemory, sizeof(DeviceWindowTable)};
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<PooledResource> windows;

  void upload(void* to, const void* from, size_t bytes) const {
    std::memcpy(staging.get(), from, bytes);
    check(cudaMemcpyAsync(to, staging.get(), bytes, cudaMemcpyHostToDevice, stream.stream()),
          "writing a window");
    check(cudaStreamSynchronize(stream.stream()), "writing a window");
  }
  // All tables that have changed, the last one first: the others refer to it.
  void upload_tables() const {
    for (auto it = tables.rbegin(); it != tables.rend(); ++it) {
      if (!(*it)->changed) continue;
      upload((*it)->memory.get(), &(*it)->copy, sizeof(DeviceWindowTable));
      (*it)->changed = false;
    }
  }
  DeviceWindowTable::Entry* find(const void* window, Table*& holder) const {
    for (const auto& table : tables)
      for (DeviceWindowTable::Entry& entry : table->copy.entries)
        if (entry.window == window) {
          holder = table.get();
          return &entry;
        }
    return nullptr;
  }
  void add_table() {
    tables.push_back(std::make_unique<Table>());
    if (tables.size() == 1) return;
    Table& before = *tables[tables.size() - 2];
    before.copy.next = static_cast<DeviceWindowTable*>(tables.back()->memory.get());
    before.changed = true;
  }
};

DeviceWindows::DeviceWindows(int device) {
  const SetupScope scope(device);
  state_ = std::make_unique<State>(device);
  state_->add_table();
  state_->upload_tables();
}

DeviceWindows::~DeviceWindows() {
  const SetupScope scope(state_->device, std::nothrow);
  state_.reset();
}

DeviceWindowTable* DeviceWindows::table() {
  return static_cast<DeviceWindowTable*>(state_->tables.front()->memory.get());
}

void* DeviceWindows::add(const DeviceWindow& window, const void* user, size_t size) {
  State& s = *state_;
  const SetupScope scope(s.device);
  PooledResource memory(DeviceStore::Kind::kDeviceMemory, sizeof window);
  s.upload(memory.get(), &window, sizeof window);
  State::Table* table = nullptr;
  DeviceWindowTable::Entry* entry = s.find(nullptr, table);
  if (entry == nullptr) {
    s.add_table();
    entry = s.find(nullptr, table);
  }
  *entry = {reinterpret_cast<uint64_t>(user), size, memory.get()};
  table->changed = true;
  s.upload_tables();
  s.windows.push_back(std::move(memory));
  return s.windows.back().get();
}

void DeviceWindows::update(void* window, const DeviceWindow& content) {
  const SetupScope scope(state_->device);
  state_->upload(window, &content, sizeof content);
}

// A copy here could wait behind kernels of other ranks of this process. So the table keeps the
// entry until the next window comes. Nobody looks up memory that is no window any more.
void DeviceWindows::remove(void* window) {
  State& s = *state_;
  const SetupScope scope(s.device);
  State::Table* table = nullptr;
  DeviceWindowTable::Entry* entry = s.find(window, table);
  if (entry == nullptr) return;
  *entry = {};
  table->changed = true;
  std::erase_if(s.windows, [&](const PooledResource& one) { return one.get() == window; });
}

void* allocate_zeroed(int device, size_t bytes) {
  const SetupScope scope(device);
  void* memory = allocate(bytes);
  const PooledResource stream(DeviceStore::Kind::kStream);
  check(cudaMemsetAsync(memory, 0, bytes, stream.stream()), "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream.stream()), "cudaMemsetAsync");
  return memory;
}

}  // namespace weft::cuda
