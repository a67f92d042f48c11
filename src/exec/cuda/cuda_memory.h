// The memory driver that is CUDA (memory_driver.h).
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <utility>

#include "src/base/handles.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/launch_order.h"
#include "src/exec/cuda/memory_driver.h"

namespace weft::cuda {

class CudaMemory : public MemoryDriver {
 public:
  // Asks a peer for a descriptor that it lends. Returns an empty one if the peer has taken it back.
  // May throw.
  using Borrow = std::function<std::pair<Fd, uint64_t>(int peer, uint64_t id)>;
  // `entries`: of the table. `device` must be current. `flags` and `order`: of the launches.
  CudaMemory(int device, size_t entries, HostFlags* flags, std::shared_ptr<LaunchOrder> order,
             Borrow borrow);

  const uint64_t* table() const { return table_; }

  void enter() override;
  uint64_t id(uint64_t address) override;
  bool find(uint64_t address, Allocation& found) override;
  bool is_ours(uint64_t address) override;
  Shared share(const Allocation& allocation, bool watched, BoardEntry& entry,
               std::string& why) override;
  void take_back(uint64_t descriptor) override;
  Fd dma_buf(const Allocation& allocation) override;
  void mark(cudaStream_t stream) override;
  bool reached() override;
  bool is_quiet() override;
  bool is_stopped() override;
  uint64_t reserve(uint64_t bytes) override;
  void unreserve(uint64_t base, uint64_t bytes) override;
  uint64_t map(int peer, const BoardEntry& entry, uint64_t at, std::string& why) override;
  void unmap(const BoardEntry& entry, uint64_t at) override;
  void set_table(size_t index, uint64_t address) override;
  void flush_table() override;
  void when_quiet(std::function<void()> free) override;

 private:
  void copy_table(size_t first, size_t end);

  const int device_;
  HostFlags* const flags_;
  const std::shared_ptr<LaunchOrder> order_;
  const Borrow borrow_;
  const size_t table_bytes_;
  const PooledResource kept_mirror_{DeviceStore::Kind::kHostMemory, table_bytes_},
      kept_table_{DeviceStore::Kind::kDeviceMemory, table_bytes_},
      kept_stream_{DeviceStore::Kind::kStream}, kept_mark_{DeviceStore::Kind::kEvent};
  // Host copy of the table. Pinned: a copy from pageable memory would wait behind kernels of other
  // ranks.
  uint64_t* const mirror_ = static_cast<uint64_t*>(kept_mirror_.get());
  uint64_t* const table_ = static_cast<uint64_t*>(kept_table_.get());
  size_t changed_from_ = 0, changed_to_ = 0;  // of the table, since the last flush
};

}  // namespace weft::cuda
