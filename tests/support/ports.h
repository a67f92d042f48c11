// Ports for tests that must name a port.
#pragma once

#include <cstdint>

namespace weft::test {

// A TCP port that is not in use. The kernel does not give it to an outgoing connection: it lies
// outside /proc/sys/net/ipv4/ip_local_port_range.
uint16_t free_port();

// A port of 127.0.0.1 where nobody listens. Nobody else can listen there while this object lives.
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
