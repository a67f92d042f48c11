// SipHash-2-4, a keyed pseudo-random function. It proves knowledge of a 128-bit secret without
// sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

using Secret = std::array<uint8_t, 16>;

uint64_t siphash(const Secret& key, const void* data, size_t size);

// A secret derived from another one. The label names its purpose.
Secret derive(const Secret& key, std::string_view label, uint64_t number = 0);

// Proves that a side knows the secret and has seen everything `said` so far.
using Proof = std::array<uint64_t, 2>;
Proof prove(const Secret& secret, std::string_view side, const void* said, size_t size);
// Compares in constant time.
inline bool same(const Proof& a, const Proof& b) { return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0; }

// Fills from the kernel's random source. Throws Error if there is none.
void fill_random(void* data, size_t size);
Secret random_secret();

}  // namespace weft
