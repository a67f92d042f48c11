// The connecting side of connect.h.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "plugins/common/connect.h"
#include "plugins/common/errors.h"
#include "src/transport/socket.h"

namespace weft::net_common {
namespace {

// The connector gives up an address that does not answer after kAddressSeconds, and all of them
// after kAllSeconds.
constexpr double kAddressSeconds = 3, kAllSeconds = 60;

}  // namespace

Connector::Connector(const Handle& handle, uint16_t sockets, const std::optional<Secret>& secret,
                     Wire wire)
    : key_(connection_key(secret, handle.nonce)), wanted_(sockets) {
  if (handle.magic != Handle::kMagic) {
    failure_ = "the handle is not one of this plugin: do all hosts use the same?";
    return;
  }
  for (const Address& address : handle.addresses)
    if (address.family != 0) addresses_.push_back(address);
  if (addresses_.empty()) failure_ = "the peer's handle has no address";
  const auto seal = common_seal(seals_for(wire), handle.seals);
  if (seal)
    seal_ = *seal;
  else
    failure_ = fmt::format("the peer has WEFT_WIRE={}, this process WEFT_WIRE={}",
                           wire_name(handle.seals), name_of(wire));
  fill_random(&connection_, sizeof connection_);
}

void Connector::open() {
  const Address& address = addresses_[address_];
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  fd_ = Fd(socket(address.family == 4 ? AF_INET : AF_INET6,
                  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  tried_ = Clock::now();
  connected_ = false;
  handshake_.reset();
  if (!fd_) return next_address(std::strerror(errno));
  set_no_delay(fd_.get());
  if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 && errno != EINPROGRESS)
    next_address(std::strerror(errno));
}

// Connected sockets stay. Only the first socket of a connection tries other addresses.
void Connector::next_address(const std::string& why) {
  const Address& address = addresses_[address_];
  inform(fmt::format("{}: {}", describe(address), why));
  const std::string reason = fmt::format("{}: {}", describe(address), why);
  if (reasons_.find(reason) == std::string::npos)
    reasons_ += (reasons_.empty() ? "" : "; ") + reason;
  fd_.reset();
  if (sockets_.empty()) address_ = (address_ + 1) % addresses_.size();
  if (std::chrono::duration<double>(Clock::now() - begun_).count() > kAllSeconds)
    failure_ = fmt::format(
        "no address of the peer leads to it ({}); NCCL_SOCKET_IFNAME chooses "
        "the interface",
        reasons_);
}

std::optional<Joined> Connector::join() {
  if (failed()) return std::nullopt;
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - tried_).count(); };
  if (!fd_) {
    // After all addresses have refused once, wait 20 ms.
    if (address_ == 0 && !reasons_.empty() && seconds() < 0.02) return std::nullopt;
    open();
    if (!fd_) return std::nullopt;
  }
  if (!connected_) {
    pollfd p{fd_.get(), POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) {
      if (seconds() > kAddressSeconds) next_address("no answer");
      return std::nullopt;
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      next_address(std::strerror(error));
      return std::nullopt;
    }
    if (is_connected_to_itself(fd_.get())) {
      next_address("nobody listens there");
      return std::nullopt;
    }
    connected_ = true;
    handshake_.emplace(key_, connection_, static_cast<uint16_t>(sockets_.size()), wanted_, seal_);
  }
  const Progress progress = handshake_->advance(fd_.get());
  if (progress == Progress::kFailed)
    next_address("another process answers there, or it does not know the secret");
  if (progress == Progress::kWaiting && seconds() > kHandshakeSeconds)
    next_address("connected, but the peer does not speak");
  if (progress != Progress::kDone) return std::nullopt;
  sockets_.push_back(std::move(fd_));
  if (seal_ != Seal::Kind::kNone) seals_.push_back(handshake_->seal());
  if (sockets_.size() < wanted_) return std::nullopt;
  return Joined{std::move(sockets_), describe(addresses_[address_]), std::move(seals_)};
}

}  // namespace weft::net_common
