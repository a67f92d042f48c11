// See ports.h.
#include "tests/support/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace weft::test {
namespace {

// Without SO_REUSEADDR, ports of old connections that linger count as used too.
bool nobody_uses(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  const bool free = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0;
  if (fd >= 0) close(fd);
  return free;
}

}  // namespace

uint16_t free_port() {
  constexpr int kFirst = 10000, kPorts = 50000;
  int low = 32768, high = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  // If the kernel's range covers all our ports, any free port must do.
  const bool none_else = low <= kFirst && high >= kFirst + kPorts - 1;
  // Programs that run at the same time start at different ports. Each call returns another port.
  static int next = static_cast<int>(getpid() * 37L % kPorts);
  for (int tries = 0; tries < kPorts; tries++) {
    const int port = kFirst + next++ % kPorts;
    if ((none_else || port < low || port > high) && nobody_uses(static_cast<uint16_t>(port)))
      return static_cast<uint16_t>(port);
  }
  throw std::runtime_error("no free TCP port");
}

// The socket is bound but does not listen.
DeafPort::DeafPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (fd_ < 0 || bind(fd_, where, size) != 0 || getsockname(fd_, where, &size) != 0)
    throw std::runtime_error("cannot bind a port of 127.0.0.1");
  number_ = ntohs(address.sin_port);
}

DeafPort::~DeafPort() { close(fd_); }

}  // namespace weft::test
