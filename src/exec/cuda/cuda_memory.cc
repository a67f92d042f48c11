// See cuda_memory.h.
#include "src/exec/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>

#include "src/exec/cuda/allocations.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/ipc_memory.h"
#include "src/exec/cuda/net_memory.h"
#include "src/exec/cuda/virtual_memory.h"
#include "src/transport/descriptors.h"

namespace weft::cuda {

CudaMemory::CudaMemory(int device, size_t entries, HostFlags* flags,
                       std::shared_ptr<LaunchOrder> order, Borrow borrow)
    : device_(device),
      flags_(flags),
      order_(std::move(order)),
      borrow_(std::move(borrow)),
      table_bytes_(entries * sizeof(uint64_t)) {
  std::fill_n(mirror_, entries, 0);
  copy_table(0, entries);  // also uses the stream for the first time, while no kernel of this
                           // communicator waits
  ids_tell_mappings();     // tries it now: it maps and unmaps, which a launch must not do
}

// Captures of other threads do not forbid this thread anything.
void CudaMemory::enter() {
  check(cudaSetDevice(device_), "cudaSetDevice");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

uint64_t CudaMemory::id(uint64_t address) { return allocation_id(address); }

bool CudaMemory::find(uint64_t address, Allocation& found) {
  const OutsideCapture outside;
  if (!find_allocation(address, found.base, found.size)) return false;
  found.id = allocation_id(found.base);
  return found.id != 0;
}

bool CudaMemory::is_ours(uint64_t address) { return is_from_mem_alloc(address); }

// Memory from cudaMalloc has a CUDA IPC handle. Memory from cuMemCreate has a descriptor.
Shared CudaMemory::share(const Allocation& allocation, bool watched, BoardEntry& entry,
                         std::string& why) {
  const OutsideCapture outside;
  cudaIpcMemHandle_t handle;
  static_assert(sizeof handle == sizeof entry.handle);
  if (has_ipc_handle(allocation.base)) {
    if (cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(allocation.base)) == cudaSuccess) {
      std::memcpy(entry.handle, &handle, sizeof handle);
      return Shared::kYes;
    }
    cudaGetLastError();
  }
  if (watched && !ids_tell_mappings()) {
    why = "this driver's ids do not tell when such memory changes: register it";
    return Shared::kNo;
  }
  Descriptors::Lent lent{export_allocation(allocation.base, why), allocation.size};
  if (!lent.fd) return Shared::kNo;
  std::vector<Descriptors::Lent> one;
  one.push_back(std::move(lent));
  entry.descriptor = Descriptors::instance().lend(std::move(one));
  entry.region = 1;
  if (entry.descriptor != 0) return Shared::kYes;
  why = "too many descriptors would be open at once (ulimit -n)";
  return Shared::kLater;
}

Fd CudaMemory::dma_buf(const Allocation& allocation) {
  const OutsideCapture outside;
  return export_dma_buf(allocation.base, allocation.size);
}

void CudaMemory::take_back(uint64_t descriptor) {
  if (descriptor != 0) Descriptors::instance().take_back(descriptor);
}

void CudaMemory::mark(cudaStream_t stream) {
  check(cudaEventRecord(kept_mark_.event(), stream), "cudaEventRecord");
}

bool CudaMemory::reached() { return cudaEventQuery(kept_mark_.event()) == cudaSuccess; }
bool CudaMemory::is_quiet() { return order_->is_done(); }
bool CudaMemory::is_stopped() { return __atomic_load_n(&flags_->stop, __ATOMIC_SEQ_CST) != 0; }
uint64_t CudaMemory::reserve(uint64_t bytes) { return reserve_addresses(bytes); }
void CudaMemory::unreserve(uint64_t base, uint64_t bytes) { free_addresses(base, bytes); }

uint64_t CudaMemory::map(int peer, const BoardEntry& entry, uint64_t at, std::string& why) {
  if (entry.region == 0) {
    void* opened = nullptr;
    const cudaError_t error = open_ipc(entry.handle, &opened);
    if (error == cudaSuccess) return reinterpret_cast<uint64_t>(opened);
    // Another communicator of this process has not yet unmapped what was there before.
    if (error != cudaErrorAlreadyMapped)
      why = fmt::format("cudaIpcOpenMemHandle: {}", cudaGetErrorString(error));
    return 0;
  }
  try {
    const auto [fd, size] = borrow_(peer, entry.descriptor);
    if (!fd) {
      why = "it is lent no more";
    } else if (size != entry.size) {
      why = "its descriptor has another size";
    } else if (map_allocation(fd, at, size, device_, why)) {
      return at;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  return 0;
}

void CudaMemory::unmap(const BoardEntry& entry, uint64_t at) {
  if (entry.region != 0) return unmap_allocation(at, entry.size);
  cudaIpcCloseMemHandle(reinterpret_cast<void*>(at));
  cudaGetLastError();
}

void CudaMemory::set_table(size_t index, uint64_t address) {
  mirror_[index] = address;
  if (changed_to_ == 0) changed_from_ = index;
  changed_from_ = std::min(changed_from_, index);
  changed_to_ = std::max(changed_to_, index + 1);
}

void CudaMemory::flush_table() {
  if (changed_to_ == 0) return;
  copy_table(changed_from_, changed_to_);
  changed_to_ = 0;
}

void CudaMemory::copy_table(size_t first, size_t end) {
  check(cudaMemcpyAsync(table_ + first, mirror_ + first, (end - first) * sizeof(uint64_t),
                        cudaMemcpyHostToDevice, kept_stream_.stream()),
        "copying the table of shared memory");
  check(cudaStreamSynchronize(kept_stream_.stream()), "copying the table of shared memory");
}

void CudaMemory::when_quiet(std::function<void()> free) {
  DeviceStore::instance().free_when_quiet(device_, std::move(free));
}

}  // namespace weft::cuda
