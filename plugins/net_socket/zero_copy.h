// Sending without a copy (MSG_ZEROCOPY). The kernel reads the message's pages while it sends, and
// reports later when it no longer needs them. This pays off for large messages over a real NIC. On
// loopback and virtual NICs the kernel copies after all and says so. Then this turns itself off.
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
  // Called after a sendmsg() with kFlag. Returns the number of such calls.
  uint64_t sent() { return ++sent_; }
  // Whether the kernel no longer needs the first `number` buffers.
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
