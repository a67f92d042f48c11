// See secret.h. Every use of a key has its own label, so that no result can stand for another one.
#include "src/base/secret.h"

#include <sodium.h>
#include <sys/random.h>

#include <cerrno>
#include <span>

#include "src/base/error.h"

namespace weft {
namespace {

// BLAKE2b of the label's size, the label and the data.
template <size_t kSize>
std::array<uint8_t, kSize> hash(std::span<const uint8_t> key, std::string_view label,
                                const void* data, size_t size) {
  start_crypto();
  std::array<uint8_t, kSize> out;
  const uint64_t length = label.size();
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), out.size());
  crypto_generichash_update(&state, reinterpret_cast<const uint8_t*>(&length), sizeof length);
  crypto_generichash_update(&state, reinterpret_cast<const uint8_t*>(label.data()), label.size());
  crypto_generichash_update(&state, static_cast<const uint8_t*>(data), size);
  crypto_generichash_final(&state, out.data(), out.size());
  return out;
}

}  // namespace

void start_crypto() {
  static const int started = sodium_init();
  if (started < 0) fail(ncclSystemError, "libsodium cannot be started");
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

Secret derive(const Secret& key, std::string_view label, uint64_t number) {
  struct {
    std::array<char, 8> use{'d', 'e', 'r', 'i', 'v', 'e'};
    uint64_t number;
  } said{.number = number};
  return hash<sizeof(Secret)>(key, label, &said, sizeof said);
}

uint64_t public_number(const Secret& key, std::string_view label) {
  const auto bytes = hash<32>(key, "public", label.data(), label.size());
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof number; i++) number = number << 8 | bytes[i];
  return number;
}

Proof prove(const Secret& secret, std::string_view side, const void* said, size_t size) {
  return hash<sizeof(Proof)>(derive(secret, "proof"), side, said, size);
}

SessionKey session_key(const Secret& secret, std::string_view direction, const void* said,
                       size_t size) {
  return hash<sizeof(SessionKey)>(derive(secret, "session"), direction, said, size);
}

Tag make_tag(const SessionKey& key, const void* data, size_t size) {
  return hash<sizeof(Tag)>(key, "tag", data, size);
}

Digest digest(const void* data, size_t size) { return hash<sizeof(Digest)>({}, "", data, size); }

bool same(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}
bool same(const Tag& a, const Tag& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace weft
