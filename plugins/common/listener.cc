// The accepting side of connect.h.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

#include "plugins/common/connect.h"
#include "plugins/common/errors.h"
#include "src/base/error.h"
#include "src/transport/socket.h"

namespace weft::net_common {
namespace {

std::string peer_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "a peer";
  return describe(Address::from_sockaddr(reinterpret_cast<sockaddr*>(&storage)));
}

}  // namespace

Listener::Listener(const std::vector<Interface>& interfaces, size_t first,
                   const std::optional<Secret>& secret) {
  fill_random(handle_.nonce.data(), handle_.nonce.size());
  key_ = connection_key(secret, handle_.nonce);
  uint16_t port = 0;
  listener_ = listen_tcp(nullptr, port);
  set_blocking(listener_.get(), false);
  const auto addresses = addresses_from(interfaces, first, port, Handle::kAddresses);
  std::copy(addresses.begin(), addresses.end(), handle_.addresses);
}

// Adds an authenticated socket to its connection.
void Listener::admit(Newcomer& newcomer) {
  const Claim& claim = newcomer.handshake.claim();
  Arrived& arrived = arrived_[claim.connection];
  if (arrived.sockets.empty()) {
    arrived.sockets.resize(claim.count);
    arrived.missing = claim.count;
    arrived.peer = peer_of(newcomer.fd.get());
  }
  if (claim.index >= arrived.sockets.size() || arrived.sockets[claim.index]) return;
  arrived.sockets[claim.index] = std::move(newcomer.fd);
  arrived.missing--;
}

std::optional<Joined> Listener::join() {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) break;
    set_no_delay(fd.get());
    newcomers_.push_back({std::move(fd), ListenerHandshake(key_), Clock::now()});
  }
  for (size_t i = 0; i < newcomers_.size();) {
    Newcomer& newcomer = newcomers_[i];
    const Progress progress = newcomer.handshake.advance(newcomer.fd.get());
    if (progress == Progress::kFailed)
      inform(fmt::format("turned away a connection from {}: it did not prove itself",
                         peer_of(newcomer.fd.get())));
    if (progress == Progress::kDone) admit(newcomer);
    const double age = std::chrono::duration<double>(Clock::now() - newcomer.since).count();
    if (progress != Progress::kWaiting || age > kHandshakeSeconds) {
      newcomers_.erase(newcomers_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      i++;
    }
  }
  for (auto it = arrived_.begin(); it != arrived_.end(); ++it) {
    if (it->second.missing > 0) continue;
    Joined joined{std::move(it->second.sockets), std::move(it->second.peer)};
    arrived_.erase(it);
    return joined;
  }
  return std::nullopt;
}

}  // namespace weft::net_common
