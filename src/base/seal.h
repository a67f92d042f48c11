// Protects the data of one direction of one connection, record by record: a checksum, or
// authenticated encryption (AEAD) of libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/secret.h"

namespace weft {

// How data between hosts is protected: WEFT_WIRE.
enum class Wire : uint8_t { kPlain, kCheck, kEncrypt };
// Throws Error if the word is none of plain, check and encrypt.
Wire wire_of(std::string_view word);
const char* name_of(Wire wire);

// One thread at a time. Both ends count the records, so a lost or repeated one is damage too.
class Seal {
 public:
  // kNone: the bytes travel as they are.
  enum class Kind : uint8_t { kNone, kChecksum, kChaCha20Poly1305, kAes256Gcm };
  static constexpr size_t kTagBytes = 16;
  static constexpr uint64_t kRecordsPerKey = 1u << 20;

  Seal(Kind kind, const SessionKey& key);
  ~Seal();

  // Writes `size` bytes and a tag. `out` may be `data`.
  void seal(std::byte* out, const std::byte* data, size_t size);
  // The reverse: reads `size` bytes and a tag, writes `size` bytes. False: damaged, or made with
  // another key. What was written means nothing then.
  bool open(std::byte* out, const std::byte* data, size_t size);

 private:
  using Nonce = std::array<uint8_t, 12>;
  Nonce nonce() const;
  void use_key();
  void count();

  Kind kind_;
  SessionKey key_;
  uint64_t number_ = 0;                         // of the next record
  alignas(16) std::array<uint8_t, 512> aes_{};  // the expanded key
};

// The kinds that this machine can use for `wire`, one bit each.
uint32_t seals_for(Wire wire);
// The best kind that two sides have in common. Empty: they have another WEFT_WIRE.
std::optional<Seal::Kind> common_seal(uint32_t ours, uint32_t theirs);
// WEFT_WIRE of a side with these kinds.
const char* wire_name(uint32_t seals);

}  // namespace weft
