// The sockets on which peers connect to this process: TCP at the addresses that peers are told, and
// one unix socket. Every connection is authenticated before its user sees it (handshake.h).
//
// Strangers cost little. Few connections at a time may be unproved. When more come, those that have
// not named a communicator of this process give way, and the others wait in the kernel.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/base/secret.h"
#include "src/transport/event_loop.h"
#include "src/transport/handshake.h"
#include "src/transport/socket.h"

namespace weft {

// Thread-safe; one per process.
class Acceptor {
 public:
  static Acceptor& instance();

  // `accept` runs on the control thread, once per authenticated connection for (secret, to_rank).
  using Accept = std::function<void(Fd connection, const Purpose& purpose, const Session& session)>;
  void serve(const Secret& secret, int to_rank, Accept accept);
  void stop(const Secret& secret, int to_rank);

  // Processes of the same user, and root, may ask on the unix socket for what `answer` returns. It
  // runs on the control thread. Others get no answer. status_request.h has the other side.
  void serve_status(std::function<std::string()> answer);

  // At loopback and at all addresses of offer().
  uint16_t port() const { return port_; }
  const std::string& unix_name() const { return unix_name_; }
  // A random number that identifies this process.
  uint64_t token() const { return token_; }
  // The addresses that peers should try, best first, at most `most`. Listens at them from now on.
  // Throws Error if it can listen at none.
  std::vector<Address> offer(const Config& config, size_t most);
  // Also listens at this address (NCCL_COMM_ID), once; see listen_tcp() for `patience`.
  void listen_at(const Address& address, Deadline patience);

  // A peer has this long to prove that it knows a secret.
  explicit Acceptor(double handshake_seconds = 10);
  // Connections that may be unproved at the same time.
  static size_t most_pending();

 private:
  using Clock = std::chrono::steady_clock;
  struct Service {
    Secret secret;
    Accept accept;
  };
  struct Listening {
    Fd fd;
    bool tcp = true;
  };
  struct Pending {
    Fd fd;
    ServerHandshake handshake;
    Clock::time_point since = Clock::now();
  };
  void listen_first();
  void add_listener(Fd fd, bool tcp);
  std::optional<Secret> find_secret(uint64_t key, const Purpose& purpose);
  // The others run on the control thread only.
  void accept_some(const Listening& listening);
  void progress(const std::shared_ptr<Pending>& pending);
  void finish(Pending& pending);
  void answer_status(int fd);
  void forget(int fd);
  bool make_room();
  void drop_older(double stranger_seconds, double named_seconds, bool only_one);
  void pause(std::chrono::milliseconds duration);
  void resume();
  void tick();
  void set_timer();

  uint64_t token_ = 0;
  const double handshake_seconds_;
  uint16_t port_ = 0;
  std::string unix_name_;
  std::mutex listen_mutex_;  // protects the next one
  std::vector<Address> addresses_;
  std::mutex mutex_;  // protects the next two
  std::map<std::pair<uint64_t, int>, Service> services_;
  std::function<std::string()> status_;
  // Control thread only.
  Fd timer_;
  std::vector<std::unique_ptr<Listening>> listeners_;
  std::map<int, std::shared_ptr<Pending>> pending_;
  bool paused_ = false, told_ = false;
  Clock::time_point resume_at_;
};

}  // namespace weft
