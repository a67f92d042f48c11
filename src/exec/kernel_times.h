// When a kernel began and ended, by the GPU's clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace weft {

// Nanoseconds of the GPU's global timer, written by the GPU. 0: not yet.
struct KernelTimes {
  const uint64_t* begin = nullptr;
  const uint64_t* end = nullptr;
  std::shared_ptr<const void> owner;  // keeps the memory, until the times have been read

  static uint64_t read(const uint64_t* time) { return __atomic_load_n(time, __ATOMIC_ACQUIRE); }
};

}  // namespace weft
