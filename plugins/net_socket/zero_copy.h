// Sending without a copy (MSG_ZEROCOPY): the kernel reads the message's pages while it sends and
// says later when it has done with them. Pays for large messages over a real NIC. Where the kernel
// copies after all (loopback, virtual NICs) it says so, and this turns itself off.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace weft::net_socket {

// One thread at a time; one socket, which must outlive it.
class ZeroCopy {
 public:
  static constexpr int kFlag = MSG_ZEROCOPY;
  static constexpr uint64_t kLeastBytes = 32u << 10;

  ZeroCopy(int fd, bool wanted);

  bool pays(uint64_t bytes) const { return on_ && bytes >= kLeastBytes; }
  // After a sendmsg() with kFlag: how many there have been.
  uint64_t sent() { return ++sent_; }
  // Whether the kernel has done with the first `number` of them.
  bool returned(uint64_t number);
  bool pending() const { return returned_ != sent_; }
  void give_up() { on_ = false; }

 private:
  void read_notices();

  const int fd_;
  bool on_ = false;
  uint64_t sent_ = 0, returned_ = 0;
};

}  // namespace weft::net_socket
