// The receiving end of a connection. Messages arrive in the order they were sent, into the memory
// of irecv() calls in their order. One thread at a time, besides the connection's own threads.
#pragma once

#include <array>

#include "plugins/net_socket/sealed_socket.h"
#include "plugins/net_socket/sockets.h"

namespace weft::net_socket {

class Receiver : public SocketSet {
 public:
  struct Request {
    Receiver* receiver = nullptr;
    std::byte* data = nullptr;
    uint64_t room = 0;
    uint64_t size = 0;  // known when the frame has arrived
    uint32_t stripes = 0;
    bool lent = false;  // the sender waits for a byte
    std::atomic<uint32_t> stripes_left{0};
    bool used = false;
  };

  // seals: one per socket, or none.
  Receiver(std::vector<Fd> sockets, int threads, std::string peer,
           const std::vector<Seal>& seals = {});
  ~Receiver() override { stop_threads(); }

  // nullptr: too many in flight.
  Request* start(void* data, size_t room);
  // True if the message has arrived. The request is then free, and its size still readable.
  bool complete(Request& request);
  // Set if a message does not fit, or if the stream is not in our format; otherwise empty.
  const std::string& complaint() const { return complaint_; }

 protected:
  Moved move(size_t socket) override;
  bool busy(size_t socket) const override { return !work_[socket].queue.empty(); }
  short direction() const override;

 private:
  struct Work {
    WorkQueue<Request> queue;
    uint64_t got = 0;  // bytes of the first request's stripe
  };
  bool read_frame(Request& request);
  void give_back();
  size_t from_stash(std::byte* to, size_t most);
  ssize_t read_more(size_t socket, std::byte* to, size_t most);

  std::array<Request, net_abi::kMaxRequests> requests_;
  uint64_t started_ = 0, framed_ = 0;
  std::vector<Work> work_;              // per socket
  std::vector<SealedReceiver> sealed_;  // per socket; empty: data travels as it is
  // Bytes that socket 0 delivered beyond the requested ones: one call reads several small messages
  // and frames. These bytes are copied twice. So while messages are large, the stash takes only the
  // next frames.
  static constexpr size_t kBriefStash = 256, kSmallAgain = 4;
  size_t stash_room() const { return small_ < kSmallAgain ? kBriefStash : stash_.size(); }
  std::array<std::byte, 12288> stash_;
  size_t stash_begin_ = 0, stash_end_ = 0;
  size_t small_ = kSmallAgain;  // messages since the last large one
  size_t owed_ = 0;  // bytes to send that confirm a message has been read, see page_loan.h
  std::string complaint_;
};

}  // namespace weft::net_socket
