// The handshake of every connection between processes of a communicator:
// client hello -> server challenge and proof -> client proof -> server's confirmation.
//
// Each side proves that it knows the communicator's secret. It answers the other side's random
// challenge with a keyed hash. The secret itself is never sent. Both sides end with the same keys,
// which are new for every connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/base/secret.h"
#include "src/transport/socket.h"

namespace weft {

// The purpose of a connection. The proof covers it too.
struct Purpose {
  enum Kind : uint32_t {
    kRendezvous = 1,
    kMemory = 2,
    kStream = 3,
    kStatus = 4,
    kWatch = 5,
    kHelp = 6
  };
  uint32_t kind = 0;
  int32_t from_rank = -1, to_rank = -1;
  uint32_t channel = 0;
};

// The keys of an authenticated connection, one per direction. What is sent with `out` is checked
// with the peer's `in`. src/comm/frame.h uses them.
struct Session {
  SessionKey out{}, in{};
};

// The public name of a secret: identifies the communicator.
uint64_t public_key(const Secret& secret);

// The client's half, blocking. Empty if the server does not know the secret (yet), closed the
// connection, or did not answer before the deadline or before it was cancelled. `why` is set where
// another version answers.
std::optional<Session> authenticate(int fd, const Secret& secret, const Purpose& purpose,
                                    Deadline deadline, const Cancelled& cancelled = nullptr,
                                    std::string* why = nullptr);

// The only message of a client that asks for the status.
void ask_status(int fd, Deadline deadline);

// The server's half. It never blocks. One thread at a time.
class ServerHandshake {
 public:
  // kStranger: the client has not named a communicator of this process yet.
  // kAsksStatus: it needs no secret, but must be of the same user; see Acceptor::serve_status().
  enum class State { kStranger, kNamed, kProved, kRefused, kAsksStatus };
  // The secret of the communicator that a client names, if this process serves it.
  using FindSecret = std::function<std::optional<Secret>(uint64_t key, const Purpose& purpose)>;

  // Reads and answers what has arrived.
  State advance(int fd, const FindSecret& find);
  // The last message of a handshake in kProved. False: the connection broke.
  bool confirm(int fd) const;

  State state() const { return state_; }
  uint64_t key() const { return hello_.key; }
  const Purpose& purpose() const { return hello_.purpose; }
  const Session& session() const { return session_; }

  using Nonce = std::array<uint8_t, 16>;
  struct Hello {
    uint32_t magic = 0, protocol = 0;
    uint64_t key = 0;
    Purpose purpose;
    Nonce nonce{};
  };

 private:
  State answer(int fd, const Secret& secret);
  State check(const Secret& secret);

  State state_ = State::kStranger;
  Hello hello_;
  Nonce nonce_{};
  Proof proof_{};
  Session session_;
  size_t got_ = 0;
};

}  // namespace weft
