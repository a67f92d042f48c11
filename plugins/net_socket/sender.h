// The sending end of a connection. Messages leave in the order of isend(). One thread at a time,
// besides the connection's own threads.
#pragma once

#include <array>

#include "plugins/net_socket/page_loan.h"
#include "plugins/net_socket/sealed_socket.h"
#include "plugins/net_socket/sockets.h"
#include "plugins/net_socket/stripes.h"
#include "plugins/net_socket/zero_copy.h"

namespace weft::net_socket {

class Sender : public SocketSet {
 public:
  struct Request {
    Sender* sender = nullptr;
    Frame head_frame, frame;
    const std::byte* head = nullptr;  // a message that goes first, on socket 0; may be nullptr
    const std::byte* body = nullptr;
    std::atomic<uint32_t> stripes_left{0};
    uint64_t last_zero_copy = 0;  // complete when the kernel has returned this many buffers
    uint64_t loan = 0;            // and when the peer has returned this many loans; 0: not lent
    bool used = false;
  };

  // lends: messages may be lent if the peer is on this machine. seals: one per socket, or none.
  // Sealed data is a copy, so nothing is lent then.
  Sender(std::vector<Fd> sockets, int threads, std::string peer, bool lends, bool fixed_stripes,
         const std::vector<Seal>& seals = {});
  ~Sender() override { stop_threads(); }

  // One message, or two that leave together. nullptr: too many in flight. A single message may be
  // lent to the peer, which can still read it after the connection has been closed.
  Request* start(const void* head, size_t head_size, const void* body, size_t body_size);
  // True if the request's memory may be reused. The request is then free.
  bool complete(Request& request);
  int waits_for(pollfd* descriptors, int most) const override;

 protected:
  Moved move(size_t socket) override;
  bool busy(size_t socket) const override;
  short direction() const override;

 private:
  struct Work {
    WorkQueue<Request> queue;
    uint64_t sent = 0;  // bytes of the first request's stripe, with frame and head
  };

  std::array<Request, net_abi::kMaxRequests> requests_;
  uint64_t started_ = 0;  // requests
  uint32_t messages_ = 0;
  std::vector<Work> work_;            // per socket
  std::vector<SealedSender> sealed_;  // per socket; empty: data travels as it is
  const bool local_;                  // the peer is on this machine
  StripeChoice stripes_;
  ZeroCopy zero_copy_;  // for socket 0, the only one in use while data is scarce
  PageLoan loan_;
};

}  // namespace weft::net_socket
