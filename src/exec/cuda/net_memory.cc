// See net_memory.h.
#include "src/exec/cuda/net_memory.h"

#include <unistd.h>

#include "src/base/handles.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/driver.h"

namespace weft::cuda {
namespace {

struct Owned {
  PooledResource memory;
  Fd dma_buf;
};

// Before Hopper, what a NIC has written may become visible after the word that announces it. The
// driver says which writes are in order; a GPU's own kernels must be among those who see it so.
bool writes_need_flush(int device) {
  int major = 0, ordering = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  if (cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device) !=
      cudaSuccess)
    cudaGetLastError();
  return major < 9 || ordering < cudaGPUDirectRDMAWritesOrderingOwner;
}

}  // namespace

bool exports_dma_buf(int device) {
  const auto get = driver<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  int yes = 0;
  return get != nullptr &&
         get(&yes, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == CUDA_SUCCESS && yes != 0;
}

// It must cover whole pages of the host. Those of the GPU are larger.
Fd export_dma_buf(uint64_t base, size_t bytes) {
  const auto get = driver<decltype(cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange");
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t pages = (bytes + page - 1) / page * page;
  int fd = -1;
  if (get == nullptr || base % page != 0 ||
      get(&fd, base, pages, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
    return Fd();
  return Fd(fd);
}

LaneGpuMemory net_memory(int device, size_t bytes, bool dma_buf) {
  const SetupScope scope(device);
  auto owned = std::make_shared<Owned>();
  owned->memory = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  // A NIC may still write when a communicator is aborted.
  owned->memory.forbid_reuse();
  LaneGpuMemory memory;
  memory.memory = {static_cast<std::byte*>(owned->memory.get()), bytes};
  if (dma_buf)
    owned->dma_buf = export_dma_buf(reinterpret_cast<uint64_t>(owned->memory.get()), bytes);
  memory.dma_buf = owned->dma_buf ? owned->dma_buf.get() : -1;
  memory.needs_flush = writes_need_flush(device);
  memory.owner = std::move(owned);
  return memory;
}

}  // namespace weft::cuda
