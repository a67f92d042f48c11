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

// Connections of a listener that have not proved themselves, and how long they may stay when more
// come.
constexpr size_t kMostNewcomers = 64;
constexpr double kPatienceWhenFull = 0.25;

std::string peer_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "a peer";
  return describe(Address::from_sockaddr(reinterpret_cast<sockaddr*>(&storage)));
}

}  // namespace

Listener::Listener(const std::vector<Interface>& interfaces, size_t first,
                   const std::optional<Secret>& secret, Wire wire) {
  handle_.seals = seals_for(wire);
  fill_random(handle_.nonce.data(), handle_.nonce.size());
  key_ = connection_key(secret, handle_.nonce);
  auto addresses = addresses_from(interfaces, first, 0, Handle::kAddresses);
  uint16_t port = 0;
  // Every connection has a listener. It must not cost a descriptor per address, so with several
  // addresses it is at all of them, and join() turns away who comes to another one.
  listener_ = listen_tcp(addresses.size() == 1 ? &addresses[0] : nullptr, port);
  set_blocking(listener_.get(), false);
  for (Address& address : addresses) address.port = port;
  std::copy(addresses.begin(), addresses.end(), handle_.addresses);
}

bool Listener::is_offered(int fd) const {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return false;
  Address here = Address::from_sockaddr(reinterpret_cast<sockaddr*>(&storage));
  here.scope = 0;
  return std::find(std::begin(handle_.addresses), std::end(handle_.addresses), here) !=
         std::end(handle_.addresses);
}

// Makes room for a newcomer. False: all have come just now.
bool Listener::has_room() {
  if (newcomers_.size() < kMostNewcomers) return true;
  const double age = std::chrono::duration<double>(Clock::now() - newcomers_.front().since).count();
  if (age < kPatienceWhenFull) return false;
  newcomers_.erase(newcomers_.begin());  // the oldest
  return true;
}

// Adds an authenticated socket to its connection.
void Listener::admit(Newcomer& newcomer) {
  const Claim& claim = newcomer.handshake.claim();
  Arrived& arrived = arrived_[claim.connection];
  if (arrived.sockets.empty()) {
    arrived.sockets.resize(claim.count);
    arrived.seals.resize(claim.count);
    arrived.missing = claim.count;
    arrived.peer = peer_of(newcomer.fd.get());
  }
  if (claim.index >= arrived.sockets.size() || arrived.sockets[claim.index]) return;
  arrived.sockets[claim.index] = std::move(newcomer.fd);
  if (claim.seal != static_cast<uint64_t>(Seal::Kind::kNone))
    arrived.seals[claim.index].emplace(newcomer.handshake.seal());
  arrived.missing--;
}

std::optional<Joined> Listener::join() {
  while (has_room()) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) break;
    if (!is_offered(fd.get())) continue;
    set_no_delay(fd.get());
    newcomers_.push_back({std::move(fd), ListenerHandshake(key_, handle_.seals), Clock::now()});
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
    Joined joined{std::move(it->second.sockets), std::move(it->second.peer), {}};
    for (const auto& seal : it->second.seals)
      if (seal) joined.seals.push_back(*seal);
    arrived_.erase(it);
    return joined;
  }
  return std::nullopt;
}

}  // namespace weft::net_common
