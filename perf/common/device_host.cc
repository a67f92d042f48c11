// The device interface in builds without CUDA. ncclMemAlloc gives host memory, and calls are
// complete when they return.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "weft.h"

// These programs also load other libraries, which do not have it and always use GPUs.
#pragma weak weftHostMode

namespace weft::perf::device {

const char* unavailable() {
  return weftHostMode != nullptr && weftHostMode() == 1
             ? nullptr
             : "the library drives GPUs here, but these programs were built without CUDA";
}

const char* name() { return "host memory"; }

void select(int) {}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
  return memory;
}

void release(void* memory) { check(ncclMemFree(memory), "ncclMemFree"); }

void* allocate_plain(size_t bytes) { return std::make_unique<std::byte[]>(bytes).release(); }

void copy_in(void* device, const void* host, size_t bytes) { std::memcpy(device, host, bytes); }

void copy_out(void* host, const void* device, size_t bytes) { std::memcpy(host, device, bytes); }

void fill(void* device, unsigned char value, size_t bytes) { std::memset(device, value, bytes); }

void synchronize(cudaStream_t) {}

cudaStream_t stream(int, bool) { return nullptr; }

size_t memory_limit() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) / 4 * 3
                               : SIZE_MAX;
}

}  // namespace weft::perf::device
