// Devices, and memory for ncclMemAlloc.
#include <cuda_runtime.h>

#include <cctype>
#include <map>
#include <mutex>

#include "src/base/config.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/registrations.h"

namespace weft::cuda {
namespace {

struct Allocations {
  struct One {
    uint64_t size = 0, number = 0;
  };
  std::mutex mutex;
  std::map<uint64_t, One> all;  // by address
  uint64_t count = 0, releases = 0;

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
  a.all[reinterpret_cast<uint64_t>(memory)] = {size, ++a.count};
  return memory;
}

void release(void* pointer) {
  {
    Allocations& a = Allocations::instance();
    std::lock_guard lock(a.mutex);
    if (a.all.erase(reinterpret_cast<uint64_t>(pointer)) == 0)
      fail(ncclInvalidArgument, "ptr did not come from ncclMemAlloc");
    a.releases++;
  }
  const OutsideCapture outside;
  check(cudaFree(pointer), "cudaFree");
}

uint64_t releases() {
  Allocations& a = Allocations::instance();
  std::lock_guard lock(a.mutex);
  return a.releases;
}

uint64_t allocation_number(const void* pointer) {
  Allocations& a = Allocations::instance();
  const auto at = reinterpret_cast<uint64_t>(pointer);
  std::lock_guard lock(a.mutex);
  auto it = a.all.upper_bound(at);
  if (it == a.all.begin()) return 0;
  --it;
  return at < it->first + it->second.size ? it->second.number : 0;
}

}  // namespace weft::cuda
