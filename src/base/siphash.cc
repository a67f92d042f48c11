// SipHash-2-4 as published by Aumasson and Bernstein; the unit test holds their vectors.
#include "src/base/siphash.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/error.h"

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

Secret derive(const Secret& key, std::string_view label, uint64_t number) {
  Secret out{};
  for (uint8_t half = 0; half < 2; half++) {
    std::string text(label);
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
    text.push_back(static_cast<char>(half));
    const uint64_t word = siphash(key, text.data(), text.size());
    std::memcpy(out.data() + 8 * half, &word, 8);
  }
  return out;
}

Proof prove(const Secret& secret, std::string_view side, const void* said, size_t size) {
  Proof proof;
  for (uint64_t half = 0; half < 2; half++)
    proof[half] = siphash(derive(secret, side, half), said, size);
  return proof;
}

void fill_random(void* data, size_t size) {
  auto* bytes = static_cast<uint8_t*>(data);
  while (size > 0) {
    const ssize_t got = getrandom(bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, "getrandom failed, no secret can be made");
    bytes += got;
    size -= static_cast<size_t>(got);
  }
}

Secret random_secret() {
  Secret secret;
  fill_random(secret.data(), secret.size());
  return secret;
}

}  // namespace weft
