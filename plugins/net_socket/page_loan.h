// Sending to a peer on this machine without a copy: the socket refers to the sender's pages until
// the receiver reads them, where the only copy is made. MSG_ZEROCOPY copies on loopback; pages that
// come out of a pipe are not. The kernel does not say when they have been read, so the receiver
// does, with a byte per message on the way back. It pays for memory that is in no core's
// cache, such as what a GPU has written (six pairs of processes, both ways: 47 GB/s instead of 36).
// It does not pay for what another core has just written (36 instead of 39). sendfile() from a
// memfd is slower than this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/handles.h"

namespace weft::net_socket {

// One thread at a time; one socket, which must outlive it.
class PageLoan {
 public:
  // Below, the pipe and the receiver's byte cost more than a copy.
  static constexpr uint64_t kLeastBytes = 192u << 10;

  PageLoan(int fd, bool wanted) : fd_(fd), on_(wanted) {}

  bool pays(uint64_t bytes) const { return on_ && bytes >= kLeastBytes; }
  // False: copy what is left, pages cannot be lent here.
  bool works() const { return on_; }
  // Before a message whose frame says that it is lent: how many there have been.
  uint64_t begin() { return ++begun_; }
  // The message's next bytes, as send() does it; errors are EAGAIN and EINTR, others end works().
  // What does not leave must come first the next time.
  ssize_t send(const std::byte* data, size_t size);
  // Whether the peer has read the first `number` of them; if not, see broken().
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
