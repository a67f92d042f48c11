// See zero_copy.h.
#include "plugins/net_socket/zero_copy.h"

#include <linux/errqueue.h>
#include <netinet/in.h>

#include <cstring>

namespace weft::net_socket {

ZeroCopy::ZeroCopy(int fd, bool wanted) : fd_(fd) {
  const int one = 1;
  on_ = wanted && setsockopt(fd_, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0;
}

bool ZeroCopy::returned(uint64_t number) {
  if (returned_ < number) read_notices();
  return returned_ >= number;
}

// A notification covers a range of sends. TCP returns buffers in order.
void ZeroCopy::read_notices() {
  for (;;) {
    alignas(cmsghdr) char control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const bool v4 = c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR;
      const bool v6 = c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR;
      if (!v4 && !v6) continue;
      sock_extended_err notice{};
      std::memcpy(&notice, CMSG_DATA(c), sizeof notice);
      if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      // The kernel's counter has 32 bits.
      const auto further =
          static_cast<int32_t>(notice.ee_data + 1 - static_cast<uint32_t>(returned_));
      if (further > 0) returned_ += static_cast<uint64_t>(further);
      if ((notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) on_ = false;
    }
  }
}

}  // namespace weft::net_socket
