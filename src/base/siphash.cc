// SipHash-2-4 as published by Aumasson and Bernstein; the unit test holds their vectors.
#include "src/base/siphash.h"

#include <bit>
#include <cstring>

namespace weft {
namespace {

struct State {
  uint64_t a, b, c, d;
  void round() {
    a += b;
    b = std::rotl(b, 13) ^ a;
    a = std::rotl(a, 32);
    c += d;
    d = std::rotl(d, 16) ^ c;
    a += d;
    d = std::rotl(d, 21) ^ a;
    c += b;
    b = std::rotl(b, 17) ^ c;
    c = std::rotl(c, 32);
  }
};

uint64_t load64(const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, 8);
  return value;
}

}  // namespace

uint64_t siphash(const Secret& key, const void* data, size_t size) {
  const uint64_t k0 = load64(key.data()), k1 = load64(key.data() + 8);
  State s{k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
          k1 ^ 0x7465646279746573u};
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto absorb = [&](uint64_t word) {
    s.d ^= word;
    s.round();
    s.round();
    s.a ^= word;
  };
  size_t i = 0;
  for (; i + 8 <= size; i += 8) absorb(load64(bytes + i));
  uint64_t last = static_cast<uint64_t>(size) << 56;
  for (size_t j = 0; i + j < size; j++) last |= static_cast<uint64_t>(bytes[i + j]) << (8 * j);
  absorb(last);
  s.c ^= 0xff;
  for (int i2 = 0; i2 < 4; i2++) s.round();
  return s.a ^ s.b ^ s.c ^ s.d;
}

}  // namespace weft
