// The sockets on which peers connect to this process: one TCP and one unix socket. Every connection
// is authenticated before its user sees it.
//
// Each side proves that it knows the communicator's secret. It answers the other side's random
// challenge with a keyed hash. The secret itself is never sent. Both sides end with the same keys,
// which are new for every connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/secret.h"
#include "src/transport/event_loop.h"
#include "src/transport/socket.h"

namespace weft {

// The purpose of a connection. The proof covers it too.
struct Purpose {
  enum Kind : uint32_t { kRendezvous = 1, kMemory = 2, kStream = 3 };
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

// Thread-safe; one per process.
class Acceptor {
 public:
  static Acceptor& instance();

  // `accept` runs on the control thread, once per authenticated connection for (secret, to_rank).
  using Accept = std::function<void(Fd connection, const Purpose& purpose, const Session& session)>;
  void serve(const Secret& secret, int to_rank, Accept accept);
  void stop(const Secret& secret, int to_rank);

  uint16_t port() const { return port_; }
  const std::string& unix_name() const { return unix_name_; }
  // A random number that identifies this process.
  uint64_t token() const { return token_; }
  // Also listens at this address (NCCL_COMM_ID), once; see listen_tcp() for `patience`.
  void listen_at(const Address& address, Deadline patience);

  // A peer has this long to prove that it knows a secret.
  explicit Acceptor(double handshake_seconds = 10);

 private:
  struct Service {
    Secret secret;
    Accept accept;
  };
  struct Pending;
  void watch_listener(int fd, bool tcp);
  void progress(const std::shared_ptr<Pending>& pending);
  bool advance(Pending& pending);
  void drop_stale();

  Fd tcp_, unix_;
  std::mutex listen_mutex_;  // protects the next two
  std::vector<Fd> extra_;
  std::vector<Address> listening_;
  uint64_t token_ = 0;
  const double handshake_seconds_;
  uint16_t port_ = 0;
  std::string unix_name_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, Service> services_;
  std::map<int, std::shared_ptr<Pending>> pending_;  // control thread only
};

// The client's half of the handshake, blocking. Empty if the server does not know the secret (yet),
// closed the connection, or did not answer before the deadline.
std::optional<Session> authenticate(int fd, const Secret& secret, const Purpose& purpose,
                                    Deadline deadline);

}  // namespace weft
