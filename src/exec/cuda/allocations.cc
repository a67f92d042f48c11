// Devices, and memory for ncclMemAlloc.
#include "src/exec/cuda/allocations.h"

#include <cuda_runtime.h>

#include <cctype>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/flat_window.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/virtual_memory.h"

namespace weft::cuda {
namespace {

struct Allocations {
  std::mutex mutex;
  struct Memory {
    uint64_t size = 0;
    bool mapped = false;  // from cuMemCreate, not from cudaMalloc
  };
  std::map<uint64_t, Memory> all;  // by address

  static Allocations& instance() {
    static Allocations& allocations = *std::make_unique<Allocations>().release();
    return allocations;
  }
};

// Other GPUs whose kernels can access this one's memory.
std::vector<int> devices_with_access(int device) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  std::vector<int> devices;
  for (int other = 0; other < count; other++) {
    int can = 0;
    if (other != device && cudaDeviceCanAccessPeer(&can, other, device) == cudaSuccess && can != 0)
      devices.push_back(other);
  }
  return devices;
}

}  // namespace

bool available() {
  static const bool found = [] {
    if (Config::from_environment().host_mode) return false;
    int count = 0;
    const bool ok = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    cudaGetLastError();
    return ok;
  }();
  return found;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

std::string bus_id(int device) {
  char text[32] = {};
  const bool known = cudaDeviceGetPCIBusId(text, sizeof text, device) == cudaSuccess;
  cudaGetLastError();
  std::string id = known ? text : "";
  for (char& letter : id) letter = static_cast<char>(std::tolower(letter));
  return id;
}

bool on_device(const void* pointer) {
  cudaPointerAttributes attributes;
  const bool known = cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess;
  cudaGetLastError();
  return known && attributes.type != cudaMemoryTypeUnregistered;
}

// From cuMemCreate, so that windows can map it into one address range with the memory of peers.
// Memory from cudaMalloc, where the driver lacks that, can still be shared by its IPC handle.
void* allocate(size_t size) {
  const OutsideCapture outside;
  Allocations::Memory memory{size > 0 ? size : 1, false};
  const int device = current_device();
  check(cudaFree(nullptr), "cudaFree");  // the driver's functions need a context
  uint64_t at = 0;
  if (Config::from_environment().cumem_enable && can_share_mappings(device)) {
    std::string why;
    at = map_new(memory.size, device, devices_with_access(device), why);
    if (at == 0) WEFT_INFO(kReg, "ncclMemAlloc uses cudaMalloc: {}", why);
    memory.mapped = at != 0;
  }
  if (at == 0) {
    void* plain = nullptr;
    check(cudaMalloc(&plain, memory.size), "cudaMalloc");
    at = reinterpret_cast<uint64_t>(plain);
  }
  Allocations& a = Allocations::instance();
  std::lock_guard lock(a.mutex);
  a.all[at] = memory;
  return reinterpret_cast<void*>(at);
}

void release(void* pointer) {
  const auto at = reinterpret_cast<uint64_t>(pointer);
  Allocations::Memory memory;
  {
    Allocations& a = Allocations::instance();
    std::lock_guard lock(a.mutex);
    const auto it = a.all.find(at);
    if (it == a.all.end()) fail(ncclInvalidArgument, "ptr did not come from ncclMemAlloc");
    memory = it->second;
    a.all.erase(it);
  }
  const OutsideCapture outside;
  if (!memory.mapped) return check(cudaFree(pointer), "cudaFree");
  unmap_allocation(at, memory.size);
  free_addresses(at, memory.size);
}

bool is_from_mem_alloc(uint64_t address) {
  Allocations& a = Allocations::instance();
  std::lock_guard lock(a.mutex);
  auto it = a.all.upper_bound(address);
  if (it == a.all.begin()) return false;
  --it;
  return address < it->first + it->second.size;
}

}  // namespace weft::cuda
