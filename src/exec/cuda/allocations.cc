// Devices, and memory for ncclMemAlloc.
#include "src/exec/cuda/allocations.h"

#include <cuda_runtime.h>

#include <cctype>
#include <map>
#include <mutex>

#include "src/base/config.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {
namespace {

struct Allocations {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> all;  // sizes, by address

  static Allocations& instance() {
    static Allocations& allocations = *std::make_unique<Allocations>().release();
    return allocations;
  }
};

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

void* allocate(size_t size) {
  const OutsideCapture outside;
  void* memory = nullptr;
  size = size > 0 ? size : 1;
  check(cudaMalloc(&memory, size), "cudaMalloc");
  Allocations& a = Allocations::instance();
  std::lock_guard lock(a.mutex);
  a.all[reinterpret_cast<uint64_t>(memory)] = size;
  return memory;
}

void release(void* pointer) {
  {
    Allocations& a = Allocations::instance();
    std::lock_guard lock(a.mutex);
    if (a.all.erase(reinterpret_cast<uint64_t>(pointer)) == 0)
      fail(ncclInvalidArgument, "ptr did not come from ncclMemAlloc");
  }
  const OutsideCapture outside;
  check(cudaFree(pointer), "cudaFree");
}

bool is_from_mem_alloc(uint64_t address) {
  Allocations& a = Allocations::instance();
  std::lock_guard lock(a.mutex);
  auto it = a.all.upper_bound(address);
  if (it == a.all.begin()) return false;
  --it;
  return address < it->first + it->second;
}

}  // namespace weft::cuda
