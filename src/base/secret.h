// Secrets, and what is made from them with keyed BLAKE2b (libsodium): derived secrets, proofs of
// knowledge, session keys and message tags.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

using Secret = std::array<uint8_t, 16>;

// Lets libsodium choose its implementations for this CPU. Everything here calls it.
void start_crypto();

// Fills from the kernel's random source. Throws Error if there is none.
void fill_random(void* data, size_t size);
Secret random_secret();

// A secret derived from another one. The label names its purpose.
Secret derive(const Secret& key, std::string_view label, uint64_t number = 0);
// A number that identifies a secret. It may be public: the secret cannot be computed from it.
uint64_t public_number(const Secret& key, std::string_view label);

// Proves that a side knows the secret and has seen everything `said` so far.
using Proof = std::array<uint8_t, 32>;
Proof prove(const Secret& secret, std::string_view side, const void* said, size_t size);

// A key for one direction of one connection. It depends on everything said in the handshake.
using SessionKey = std::array<uint8_t, 32>;
SessionKey session_key(const Secret& secret, std::string_view direction, const void* said,
                       size_t size);

// Authenticates one message of a connection. Nobody without the key can make it.
using Tag = std::array<uint8_t, 16>;
Tag make_tag(const SessionKey& key, const void* data, size_t size);

// Not keyed: only as good as what authenticates the digest.
using Digest = std::array<uint8_t, 32>;
Digest digest(const void* data, size_t size);

// Compare in constant time.
bool same(const Proof& a, const Proof& b);
bool same(const Tag& a, const Tag& b);

}  // namespace weft
