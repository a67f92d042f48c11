// A clock that costs one load. The control thread sets it several times a second. A call of a few
// bytes between two threads takes 450 ns and cannot afford another one: CLOCK_MONOTONIC_COARSE took
// 26 ns, CLOCK_MONOTONIC 92 ns.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace weft {

inline int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class RoughClock {
 public:
  static constexpr int kTickMs = 250;
  // CLOCK_MONOTONIC, up to about kTickMs ago; 0: nobody has set it.
  static int64_t now_ns() { return now_.load(std::memory_order_relaxed); }
  static void tick() { now_.store(monotonic_ns(), std::memory_order_relaxed); }

 private:
  alignas(64) inline static std::atomic<int64_t> now_{0};
};

}  // namespace weft
