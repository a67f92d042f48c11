// Ports for tests that must name one.
#pragma once

#include <cstdint>

namespace weft::test {

// A TCP port that nobody uses now, and that the kernel will not hand to somebody's outgoing
// connection in between (/proc/sys/net/ipv4/ip_local_port_range).
uint16_t free_port();

// A port of 127.0.0.1 where nobody listens, and nobody else can while this lives.
class DeafPort {
 public:
  DeafPort();
  ~DeafPort();
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  uint16_t number() const { return number_; }

 private:
  int fd_ = -1;
  uint16_t number_ = 0;
};

}  // namespace weft::test
