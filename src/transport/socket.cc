// See socket.h. All descriptors are close-on-exec; sends never raise SIGPIPE.
#include "src/transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

constexpr int64_t kLookMs = 100;  // for a cancellation

// Waits for events. Throws when the deadline passes.
void wait_for(int fd, short events, Deadline deadline, const char* what,
              const Cancelled& cancelled = nullptr) {
  for (;;) {
    if (cancelled && cancelled()) fail(ncclInvalidUsage, "cancelled {}", what);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() < 0) fail(ncclSystemError, "timed out {}", what);
    pollfd p{fd, events, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::min(left.count() + 1, kLookMs)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail_errno(errno, "poll failed {}", what);
  }
}

sockaddr_un unix_address(const std::string& name, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte means the abstract namespace: nothing to clean up in the file system.
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Fd new_socket(int family, int flags = 0) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd && errno != EAFNOSUPPORT) fail_errno(errno, "cannot make a socket");
  return fd;
}

// A socket of the address's family, and where to bind it. Without an address: both families if
// possible.
Fd listening_socket(const Address* address, sockaddr_storage& storage, socklen_t& size) {
  Fd fd;
  if (address != nullptr) {
    size = address->to_sockaddr(storage);
    fd = new_socket(address->family == 4 ? AF_INET : AF_INET6);
  } else {
    fd = new_socket(AF_INET6);
    Address any;
    any.family = fd ? 6 : 4;
    size = any.to_sockaddr(storage);
    if (fd) {
      const int off = 0;
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    } else {
      fd = new_socket(AF_INET);
    }
  }
  if (!fd) fail(ncclSystemError, "this machine has neither IPv4 nor IPv6 sockets");
  return fd;
}

}  // namespace

Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

Fd try_listen_tcp(const Address* address, uint16_t& port, int& error) {
  sockaddr_storage storage;
  socklen_t size = 0;
  Fd fd = listening_socket(address, storage, size);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 ||
      listen(fd.get(), 4096) != 0) {
    error = errno;
    return {};
  }
  size = sizeof storage;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  port = Address::from_sockaddr(reinterpret_cast<sockaddr*>(&storage)).port;
  return fd;
}

Fd listen_tcp(const Address* address, uint16_t& port, Deadline patience) {
  for (bool said = false;; said = true) {
    int error = 0;
    Fd fd = try_listen_tcp(address, port, error);
    if (fd) return fd;
    const std::string where = address ? describe(*address) : "a TCP port";
    if (error != EADDRINUSE || std::chrono::steady_clock::now() >= patience)
      fail_errno(error, "cannot listen at {}", where);
    if (!said) WEFT_WARN("{} is in use; trying again for a while", where);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Fd listen_unix(const std::string& abstract_name) {
  Fd fd = new_socket(AF_UNIX);
  socklen_t size = 0;
  const sockaddr_un address = unix_address(abstract_name, size);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), 4096) != 0)
    fail_errno(errno, "cannot listen on a unix socket");
  return fd;
}

Fd connect_tcp(const Address& address, Deadline deadline) {
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  Fd fd = new_socket(address.family == 4 ? AF_INET : AF_INET6, SOCK_NONBLOCK);
  if (!fd) return {};
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0) {
    if (errno != EINPROGRESS) return {};
    // An address that does not answer must not use up the whole time. The caller may try others.
    const auto left = deadline - std::chrono::steady_clock::now();
    const int limit = static_cast<int>(std::min<int64_t>(
        3000, std::chrono::duration_cast<std::chrono::milliseconds>(left).count()));
    pollfd p{fd.get(), POLLOUT, 0};
    if (limit <= 0 || poll(&p, 1, limit) <= 0) return {};
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return {};
  }
  if (is_connected_to_itself(fd.get())) return {};
  set_blocking(fd.get(), true);
  set_no_delay(fd.get());
  return fd;
}

bool is_connected_to_itself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
      Address::from_sockaddr(reinterpret_cast<sockaddr*>(&own)) !=
          Address::from_sockaddr(reinterpret_cast<sockaddr*>(&peer)))
    return false;
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return true;
}

bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

bool is_connected_locally(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return false;
  Address here = Address::from_sockaddr(reinterpret_cast<sockaddr*>(&own));
  const Address there = Address::from_sockaddr(reinterpret_cast<sockaddr*>(&peer));
  here.port = there.port;
  return here == there;
}

double round_trip_us(int fd) {
  if (is_connected_locally(fd)) return 0;
  // The kernel's newer tcp_info has this; the C library's has not.
  struct {
    tcp_info usual;
    uint64_t pacing_rate, most_pacing_rate, bytes_acked, bytes_received;
    uint32_t segments_out, segments_in, unsent_bytes, least_round_trip;
  } info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  constexpr uint32_t kNone = ~0u;
  return size < sizeof info || info.least_round_trip == kNone ? 0 : info.least_round_trip;
}

Fd connect_unix(const std::string& abstract_name) {
  Fd fd = new_socket(AF_UNIX);
  socklen_t size = 0;
  const sockaddr_un address = unix_address(abstract_name, size);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return fd;
}

void send_all(int fd, std::span<const std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t sent = send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      data = data.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(fd, POLLOUT, deadline, "sending to a peer");
    } else if (errno != EINTR) {
      fail(ncclRemoteError, "the connection to a peer broke while sending: {}",
           std::strerror(errno));
    }
  }
}

void receive_all(int fd, std::span<std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t got = recv(fd, data.data(), data.size(), MSG_DONTWAIT);
    if (got > 0) {
      data = data.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      fail(ncclRemoteError, "a peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(fd, POLLIN, deadline, "waiting for a peer's answer");
    } else if (errno != EINTR) {
      fail(ncclRemoteError, "the connection to a peer broke: {}", std::strerror(errno));
    }
  }
}

bool send_descriptor(int socket, uint64_t value, int fd) noexcept {
  iovec data{&value, sizeof value};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

void wait_readable(int fd, Deadline deadline, const Cancelled& cancelled) {
  wait_for(fd, POLLIN, deadline, "waiting for a peer's answer", cancelled);
}

Fd receive_descriptor(int socket, uint64_t& value, Deadline deadline) {
  wait_for(socket, POLLIN, deadline, "waiting for a peer's memory");
  iovec data{&value, sizeof value};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof value))
    fail(ncclRemoteError, "a peer closed the connection instead of sharing its memory");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Fd(fd);
}

void set_blocking(int fd, bool blocking) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host that loses power says nothing. Probe it, and give up on unanswered data within a minute.
  const int idle = 10, interval = 10, probes = 3, limit_ms = 60000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

void expect_answers(int fd, double seconds) {
  // The kernel looks at the limit whenever it probes.
  const int limit_ms = static_cast<int>(seconds * 800);
  const int idle = std::max(1, static_cast<int>(seconds / 2));
  const int interval = std::max(1, static_cast<int>(seconds / 5));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

}  // namespace weft
