// See seal.h.
#include "src/base/seal.h"

#include <sodium.h>

#include <cstring>

#include "src/base/checksum.h"
#include "src/base/error.h"

namespace weft {
namespace {

static_assert(Seal::kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(Seal::kTagBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(Seal::kTagBytes == sizeof(Checksum));
static_assert(sizeof(SessionKey) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(sizeof(SessionKey) == crypto_aead_aes256gcm_KEYBYTES);
static_assert(sizeof(SessionKey) == crypto_kdf_KEYBYTES);

constexpr std::array<const char*, 3> kWireNames = {"plain", "check", "encrypt"};

constexpr uint32_t bit_of(Seal::Kind kind) { return 1u << static_cast<int>(kind); }

uint8_t* bytes(std::byte* at) { return reinterpret_cast<uint8_t*>(at); }
const uint8_t* bytes(const std::byte* at) { return reinterpret_cast<const uint8_t*>(at); }

}  // namespace

Wire wire_of(std::string_view word) {
  for (size_t i = 0; i < kWireNames.size(); i++)
    if (word == kWireNames[i]) return static_cast<Wire>(i);
  fail(ncclInvalidUsage, "WEFT_WIRE={} is none of plain, check and encrypt", word);
}

const char* name_of(Wire wire) { return kWireNames[static_cast<size_t>(wire)]; }

uint32_t seals_for(Wire wire) {
  if (wire == Wire::kPlain) return bit_of(Seal::Kind::kNone);
  if (wire == Wire::kCheck) return bit_of(Seal::Kind::kChecksum);
  start_crypto();
  return bit_of(Seal::Kind::kChaCha20Poly1305) |
         (crypto_aead_aes256gcm_is_available() != 0 ? bit_of(Seal::Kind::kAes256Gcm) : 0);
}

std::optional<Seal::Kind> common_seal(uint32_t ours, uint32_t theirs) {
  for (const Seal::Kind kind : {Seal::Kind::kAes256Gcm, Seal::Kind::kChaCha20Poly1305,
                                Seal::Kind::kChecksum, Seal::Kind::kNone})
    if ((ours & theirs & bit_of(kind)) != 0) return kind;
  return std::nullopt;
}

const char* wire_name(uint32_t seals) {
  if ((seals & bit_of(Seal::Kind::kNone)) != 0) return name_of(Wire::kPlain);
  if ((seals & bit_of(Seal::Kind::kChecksum)) != 0) return name_of(Wire::kCheck);
  return name_of(Wire::kEncrypt);
}

Seal::Seal(Kind kind, const SessionKey& key) : kind_(kind), key_(key) {
  start_crypto();
  use_key();
}

Seal::~Seal() {
  sodium_memzero(key_.data(), key_.size());
  sodium_memzero(aes_.data(), aes_.size());
}

void Seal::use_key() {
  if (kind_ != Kind::kAes256Gcm) return;
  crypto_aead_aes256gcm_state state;
  static_assert(sizeof state == sizeof aes_);
  crypto_aead_aes256gcm_beforenm(&state, key_.data());
  std::memcpy(aes_.data(), &state, sizeof state);
  sodium_memzero(&state, sizeof state);
}

// AES-GCM must not encrypt too much with one key. The next key follows from this one, which is
// forgotten.
void Seal::count() {
  if (++number_ % kRecordsPerKey != 0) return;
  SessionKey next;
  crypto_kdf_derive_from_key(next.data(), next.size(), number_ / kRecordsPerKey, "weftwire",
                             key_.data());
  key_ = next;
  sodium_memzero(next.data(), next.size());
  use_key();
}

// Every record of a key has its own.
Seal::Nonce Seal::nonce() const {
  Nonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number_, &number_, sizeof number_);
  return nonce;
}

void Seal::seal(std::byte* out, const std::byte* data, size_t size) {
  uint8_t* tag = bytes(out) + size;
  const Nonce once = nonce();
  const auto* aes = reinterpret_cast<const crypto_aead_aes256gcm_state*>(aes_.data());
  if (kind_ == Kind::kAes256Gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(bytes(out), tag, nullptr, bytes(data), size,
                                                   nullptr, 0, nullptr, once.data(), aes);
  } else if (kind_ == Kind::kChaCha20Poly1305) {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        bytes(out), tag, nullptr, bytes(data), size, nullptr, 0, nullptr, once.data(), key_.data());
  } else {
    const Checksum sum = checksum(data, size, number_);
    if (out != data) std::memcpy(out, data, size);
    std::memcpy(tag, sum.data(), sizeof sum);
  }
  count();
}

bool Seal::open(std::byte* out, const std::byte* data, size_t size) {
  const uint8_t* tag = bytes(data) + size;
  const Nonce once = nonce();
  const auto* aes = reinterpret_cast<const crypto_aead_aes256gcm_state*>(aes_.data());
  bool whole = false;
  if (kind_ == Kind::kAes256Gcm) {
    whole = crypto_aead_aes256gcm_decrypt_detached_afternm(bytes(out), nullptr, bytes(data), size,
                                                           tag, nullptr, 0, once.data(), aes) == 0;
  } else if (kind_ == Kind::kChaCha20Poly1305) {
    whole =
        crypto_aead_chacha20poly1305_ietf_decrypt_detached(
            bytes(out), nullptr, bytes(data), size, tag, nullptr, 0, once.data(), key_.data()) == 0;
  } else {
    const Checksum sum = checksum(data, size, number_);
    whole = std::memcmp(tag, sum.data(), sizeof sum) == 0;
    if (whole && out != data) std::memcpy(out, data, size);
  }
  count();
  return whole;
}

}  // namespace weft
