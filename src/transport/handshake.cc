// See handshake.h.
#include "src/transport/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

constexpr uint32_t kMagic = 0x57454654;  // "WEFT"
constexpr uint32_t kProtocol = 5;

using Hello = ServerHandshake::Hello;
using Nonce = ServerHandshake::Nonce;

struct Challenge {
  Nonce nonce{};
  Proof proof{};
};

// In place of a challenge, for a client of another version: the server's magic and protocol, then
// zeros. All versions begin their hello with theirs.
Challenge other_version() {
  Challenge answer;
  std::memcpy(answer.nonce.data(), &kMagic, sizeof kMagic);
  std::memcpy(answer.nonce.data() + sizeof kMagic, &kProtocol, sizeof kProtocol);
  return answer;
}

// The protocol in such an answer.
std::optional<uint32_t> protocol_of(const Challenge& answer) {
  uint32_t magic = 0, protocol = 0;
  std::memcpy(&magic, answer.nonce.data(), sizeof magic);
  std::memcpy(&protocol, answer.nonce.data() + sizeof magic, sizeof protocol);
  if (magic != kMagic || answer.proof != Proof{}) return std::nullopt;
  return protocol;
}

// Everything that both sides have said before the proofs.
struct Transcript {
  Hello hello;
  Nonce server;
};

// `side` prevents a proof from being sent back as the other side's.
Proof prove(const Secret& secret, std::string_view side, const Hello& hello, const Nonce& server) {
  const Transcript transcript{hello, server};
  return weft::prove(secret, side, &transcript, sizeof transcript);
}

Session client_session(const Secret& secret, const Hello& hello, const Nonce& server) {
  const Transcript transcript{hello, server};
  return {session_key(secret, "to server", &transcript, sizeof transcript),
          session_key(secret, "to client", &transcript, sizeof transcript)};
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

uint64_t public_key(const Secret& secret) { return public_number(secret, "communicator"); }

std::optional<Session> authenticate(int fd, const Secret& secret, const Purpose& purpose,
                                    Deadline deadline, const Cancelled& cancelled,
                                    std::string* why) {
  Hello hello{kMagic, kProtocol, public_key(secret), purpose, {}};
  fill_random(hello.nonce.data(), hello.nonce.size());
  Challenge challenge;
  try {
    send_all(fd, bytes_of(hello), deadline);
    wait_readable(fd, deadline, cancelled);
    receive_all(fd, writable_bytes_of(challenge), deadline);
    const auto protocol = protocol_of(challenge);
    if (protocol && *protocol != kProtocol) {
      if (why != nullptr)
        *why = fmt::format(
            "another version of this library answers (its protocol is {}, here it is {}): all "
            "ranks must have the same version",
            *protocol, kProtocol);
      return std::nullopt;
    }
    if (!same(challenge.proof, prove(secret, "server", hello, challenge.nonce)))
      return std::nullopt;
    send_all(fd, bytes_of(prove(secret, "client", hello, challenge.nonce)), deadline);
    uint32_t word = 0;
    wait_readable(fd, deadline, cancelled);
    receive_all(fd, writable_bytes_of(word), deadline);
    if (word != kMagic) return std::nullopt;
    return client_session(secret, hello, challenge.nonce);
  } catch (const Error&) {
    return std::nullopt;  // closed or timed out: the caller may try another address, or try again
  }
}

void ask_status(int fd, Deadline deadline) {
  Hello hello{kMagic, kProtocol, 0, {}, {}};
  hello.purpose.kind = Purpose::kStatus;
  send_all(fd, bytes_of(hello), deadline);
}

ServerHandshake::State ServerHandshake::advance(int fd, const FindSecret& find) {
  if (state_ != State::kStranger && state_ != State::kNamed) return state_;
  const std::span<std::byte> goal =
      state_ == State::kNamed ? writable_bytes_of(proof_) : writable_bytes_of(hello_);
  const ssize_t got = recv(fd, goal.data() + got_, goal.size() - got_, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return state_;
  if (got <= 0) return state_ = State::kRefused;
  got_ += static_cast<size_t>(got);
  constexpr size_t kVersion = offsetof(Hello, key);
  if (state_ == State::kStranger && got_ >= kVersion && hello_.magic == kMagic &&
      hello_.protocol != kProtocol) {
    const Challenge refusal = other_version();
    send(fd, &refusal, sizeof refusal, MSG_NOSIGNAL | MSG_DONTWAIT);
    return state_ = State::kRefused;
  }
  if (got_ < goal.size()) return state_;
  got_ = 0;
  if (hello_.magic != kMagic || hello_.protocol != kProtocol) return state_ = State::kRefused;
  if (hello_.purpose.kind == Purpose::kStatus) return state_ = State::kAsksStatus;
  const std::optional<Secret> secret = find(hello_.key, hello_.purpose);
  if (!secret) return state_ = State::kRefused;
  return state_ = state_ == State::kNamed ? check(*secret) : answer(fd, *secret);
}

ServerHandshake::State ServerHandshake::answer(int fd, const Secret& secret) {
  Challenge challenge;
  fill_random(challenge.nonce.data(), challenge.nonce.size());
  nonce_ = challenge.nonce;
  challenge.proof = prove(secret, "server", hello_, nonce_);
  const bool sent = send(fd, &challenge, sizeof challenge, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                    static_cast<ssize_t>(sizeof challenge);
  return sent ? State::kNamed : State::kRefused;
}

ServerHandshake::State ServerHandshake::check(const Secret& secret) {
  if (!same(proof_, prove(secret, "client", hello_, nonce_))) {
    WEFT_WARN("dropped a connection whose peer does not know the communicator's secret");
    return State::kRefused;
  }
  const Session client = client_session(secret, hello_, nonce_);
  session_ = {client.in, client.out};
  return State::kProved;
}

bool ServerHandshake::confirm(int fd) const {
  return send(fd, &kMagic, sizeof kMagic, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof kMagic);
}

}  // namespace weft
