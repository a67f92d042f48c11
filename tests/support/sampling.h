// The number of random samples, the seed and the time limits of a suite. The environment sets all
// of them, so a run can be repeated.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::test {

#ifdef WEFT_TEST_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// WEFT_TEST_SEED, or a fresh seed. Printed once per process so that any failure can be repeated.
uint64_t test_seed();

// WEFT_TEST_SAMPLES, or `normal`, or a fifth of it under a sanitizer.
int test_samples(int normal);

// A time limit: `normal` times WEFT_TEST_PATIENCE. The default factor is 1, or 4 under sanitizers.
std::chrono::milliseconds patience(std::chrono::milliseconds normal);

// The bit mixer behind all generated data (splitmix64).
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
constexpr uint64_t mix(uint64_t a, uint64_t b) { return mix(a ^ mix(b)); }
constexpr uint64_t mix(uint64_t a, uint64_t b, uint64_t c) { return mix(a, mix(b, c)); }

// A stream of random numbers from one seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mix(state_++); }
  // Uniform in [0, bound).
  uint64_t below(uint64_t bound) { return next() % bound; }
  template <typename Container>
  auto pick(const Container& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace weft::test
