// The receiving end of a connection: messages arrive in the order in which they were sent, into the
// memory of irecv() calls in their order. One thread at a time, beside the connection's own
// threads.
#pragma once

#include <array>

#include "plugins/net_socket/sockets.h"

namespace weft::net_socket {

class Receiver : public SocketSet {
 public:
  struct Request {
    Receiver* receiver = nullptr;
    std::byte* data = nullptr;
    uint64_t room = 0;
    uint64_t size = 0;  // known when the frame is there
    uint32_t stripes = 0;
    bool lent = false;  // the sender waits for a byte
    std::atomic<uint32_t> stripes_left{0};
    bool used = false;
  };

  Receiver(std::vector<Fd> sockets, int threads, std::string peer);
  ~Receiver() override { stop_threads(); }

  // nullptr: too many in flight.
  Request* start(void* data, size_t room);
  // True when the message is there; the request is free then, its size still readable.
  bool complete(Request& request);
  // A message that does not fit, or a stream that is no stream of ours; empty: neither.
  const std::string& complaint() const { return complaint_; }

 protected:
  Moved move(size_t socket) override;
  bool busy(size_t socket) const override { return !work_[socket].queue.empty(); }
  short direction() const override;

 private:
  struct Work {
    WorkQueue<Request> queue;
    uint64_t got = 0;  // of the first one's stripe
  };
  bool read_frame(Request& request);
  void give_back();
  size_t from_stash(std::byte* to, size_t most);
  ssize_t read_more(size_t socket, std::byte* to, size_t most);

  std::array<Request, net_abi::kMaxRequests> requests_;
  uint64_t started_ = 0, framed_ = 0;
  std::vector<Work> work_;  // per socket
  // What socket 0 has given beyond what was asked for: small messages and frames come in one call.
  // What comes this way is copied twice, so while messages are large it is only the next frames.
  static constexpr size_t kBriefStash = 256, kSmallAgain = 4;
  size_t stash_room() const { return small_ < kSmallAgain ? kBriefStash : stash_.size(); }
  std::array<std::byte, 12288> stash_;
  size_t stash_begin_ = 0, stash_end_ = 0;
  size_t small_ = kSmallAgain;  // messages since the last large one
  size_t owed_ = 0;             // bytes that say that a message has been read, see page_loan.h
  std::string complaint_;
};

}  // namespace weft::net_socket
