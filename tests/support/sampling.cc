// Reads WEFT_TEST_SEED, WEFT_TEST_SAMPLES and WEFT_TEST_PATIENCE.
#include "tests/support/sampling.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace weft::test {

uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("WEFT_TEST_SEED");
    const uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}() & 0x7fffffffu;
    std::printf("[   seed   ] WEFT_TEST_SEED=%llu repeats this run\n",
                static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

int test_samples(int normal) {
  if (const char* given = std::getenv("WEFT_TEST_SAMPLES")) return std::atoi(given);
  return kSanitized ? std::max(1, normal / 5) : normal;
}

std::chrono::milliseconds patience(std::chrono::milliseconds normal) {
  static const int factor = [] {
    const char* given = std::getenv("WEFT_TEST_PATIENCE");
    return given != nullptr ? std::max(1, std::atoi(given)) : kSanitized ? 4 : 1;
  }();
  return normal * factor;
}

}  // namespace weft::test
