// See cpu_time.h.
#include "tests/support/cpu_time.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Allocates small nodes and jumps between them, as the measured code does.
uint64_t fixed_work() {
  std::map<uint64_t, uint64_t> numbers;
  for (uint64_t i = 0; i < 30000; i++) numbers[mix(i) % 20000] += i;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 30000; i++) sum += numbers.count(mix(i, 1) % 40000);
  return sum;
}

constexpr double kReferenceSeconds = 0.010;

double slowness() {
  double times[5];
  uint64_t sum = 0;
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    sum += fixed_work();
    time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(std::begin(times), std::end(times));
  const double slow = std::max(1.0, times[2] / kReferenceSeconds);
  std::printf("[   slow   ] %.1f times as slow as where limits were set (%.4f s, %llu)\n", slow,
              times[2], static_cast<unsigned long long>(sum));
  return slow;
}

}  // namespace

bool in_time(double seconds, double limit) {
  return seconds < limit || seconds < limit * slowness();
}

}  // namespace weft::test
