// See handshake.h.
#include "plugins/common/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace weft::net_common {
namespace {

constexpr uint32_t kMagic = 0x57534f43;  // "WSOC"

// What both sides have said.
struct Said {
  Nonce challenge;
  Claim claim;
};
Said without_proof(const Nonce& challenge, Claim claim) {
  claim.proof = {};
  return {challenge, claim};
}

Proof prove(const Secret& key, std::string_view side, const Nonce& challenge, const Claim& claim) {
  const Said said = without_proof(challenge, claim);
  return weft::prove(key, side, &said, sizeof said);
}

Seal make_seal(const Secret& key, const Nonce& challenge, const Claim& claim) {
  const Said said = without_proof(challenge, claim);
  return {static_cast<Seal::Kind>(claim.seal), session_key(key, "data", &said, sizeof said)};
}

Progress ended(ssize_t moved) {
  const bool later = moved < 0 && (errno == EAGAIN || errno == EINTR);
  return later ? Progress::kWaiting : Progress::kFailed;
}

template <typename T>
Progress receive_some(int fd, Transfer<T>& transfer) {
  while (!transfer.complete()) {
    auto* at = reinterpret_cast<char*>(&transfer.value) + transfer.moved;
    const ssize_t got = recv(fd, at, sizeof(T) - transfer.moved, MSG_DONTWAIT);
    if (got <= 0) return ended(got);
    transfer.moved += static_cast<size_t>(got);
  }
  return Progress::kDone;
}

template <typename T>
Progress send_some(int fd, Transfer<T>& transfer) {
  while (!transfer.complete()) {
    const auto* at = reinterpret_cast<const char*>(&transfer.value) + transfer.moved;
    const ssize_t sent = send(fd, at, sizeof(T) - transfer.moved, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return ended(sent);
    transfer.moved += static_cast<size_t>(sent);
  }
  return Progress::kDone;
}

}  // namespace

Secret connection_key(const std::optional<Secret>& secret, const Nonce& handle_nonce) {
  Secret nonce;
  std::memcpy(nonce.data(), handle_nonce.data(), nonce.size());
  if (!secret) return derive(nonce, "net socket");
  return derive(derive(*secret, "net socket"), "nonce", public_number(nonce, "handle"));
}

ConnectorHandshake::ConnectorHandshake(const Secret& key, uint64_t connection, uint16_t index,
                                       uint16_t count, Seal::Kind seal)
    : key_(key) {
  Claim& claim = claim_.value;
  claim.magic = kMagic;
  claim.index = index;
  claim.count = count;
  claim.connection = connection;
  claim.seal = static_cast<uint64_t>(seal);
  fill_random(claim.nonce.data(), claim.nonce.size());
}

Progress ConnectorHandshake::advance(int fd) {
  if (const Progress p = receive_some(fd, challenge_); p != Progress::kDone) return p;
  if (!claimed_) claim_.value.proof = prove(key_, "connector", challenge_.value, claim_.value);
  claimed_ = true;
  if (const Progress p = send_some(fd, claim_); p != Progress::kDone) return p;
  if (const Progress p = receive_some(fd, answer_); p != Progress::kDone) return p;
  const Proof expected = prove(key_, "listener", challenge_.value, claim_.value);
  if (!same(answer_.value, expected)) return Progress::kFailed;
  return send_some(fd, word_);
}

Seal ConnectorHandshake::seal() const { return make_seal(key_, challenge_.value, claim_.value); }

ListenerHandshake::ListenerHandshake(const Secret& key, uint32_t seals) : key_(key), seals_(seals) {
  fill_random(challenge_.value.data(), challenge_.value.size());
}

Progress ListenerHandshake::advance(int fd) {
  if (const Progress p = send_some(fd, challenge_); p != Progress::kDone) return p;
  if (const Progress p = receive_some(fd, claim_); p != Progress::kDone) return p;
  if (!answered_) {
    const Claim& claim = claim_.value;
    if (claim.magic != kMagic || claim.index >= claim.count) return Progress::kFailed;
    if (claim.seal >= 32 || (seals_ >> claim.seal & 1) == 0) return Progress::kFailed;
    if (!same(claim.proof, prove(key_, "connector", challenge_.value, claim)))
      return Progress::kFailed;
    answer_.value = prove(key_, "listener", challenge_.value, claim);
    answered_ = true;
  }
  if (const Progress p = send_some(fd, answer_); p != Progress::kDone) return p;
  return receive_some(fd, word_);
}

Seal ListenerHandshake::seal() const { return make_seal(key_, challenge_.value, claim_.value); }

}  // namespace weft::net_common
