// Sends to a peer on this machine without a copy on the sending side. The socket refers to the
// sender's pages until the receiver reads them, which makes the only copy. MSG_ZEROCOPY copies on
// loopback, but pages spliced from a pipe are not copied. The kernel does not report when the pages
// have been read. So the receiver sends back a byte per message.
// It pays off for memory that is in no core's cache, such as what a GPU has written: six pairs of
// processes, both ways, move 47 GB/s instead of 36. It does not pay off for data that another core
// has just written: 36 GB/s instead of 39. sendfile() from a memfd is slower.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/handles.h"
#include "src/transport/net_abi/extension.h"

namespace weft::net_socket {

// One thread at a time; one socket, which must outlive it.
class PageLoan {
 public:
  // For smaller messages the pipe and the receiver's byte cost more than a copy.
  static constexpr uint64_t kLeastBytes = net_abi::kLeastLoan;

  PageLoan(int fd, bool wanted) : fd_(fd), on_(wanted) {}

  bool pays(uint64_t bytes) const { return on_ && bytes >= kLeastBytes; }
  // False: pages cannot be lent here, so the rest must be copied.
  bool works() const { return on_; }
  // Called before a message whose frame is marked as lent. Returns the number of such messages.
  uint64_t begin() { return ++begun_; }
  // Sends the message's next bytes, like send(). The errors are EAGAIN and EINTR; any other error
  // ends works(). Bytes that were not sent must come first in the next call.
  ssize_t send(const std::byte* data, size_t size);
  // Whether the peer has read the first `number` lent messages. If not, see broken().
  bool returned(uint64_t number);
  bool pending() const { return returned_ != begun_; }
  bool broken() const { return broken_; }
  int error() const { return error_; }

 private:
  void give_up(const char* what);
  bool make_pipe();
  bool fill(const std::byte* data, size_t size);

  const int fd_;
  bool on_, broken_ = false;
  int error_ = 0;  // errno, or 0: the peer closed
  Fd pipe_in_, pipe_out_;
  size_t in_pipe_ = 0;
  uint64_t begun_ = 0, returned_ = 0;
};

}  // namespace weft::net_socket
