// The receiving end of a connection. Every irecv() invites the next message, whose pieces then
// arrive in the memory it named. One thread at a time.
#pragma once

#include <array>

#include "plugins/net_verbs/connection.h"
#include "plugins/net_verbs/flush.h"
#include "plugins/net_verbs/registration.h"

namespace weft::net_verbs {

class Receiver final : public Connection {
 public:
  struct Request {
    Receiver* receiver = nullptr;
    Invitation invitation;
    const Registration* registration = nullptr;
    uint64_t size = 0;  // bytes so far
    uint32_t stripes_done = 0;
    bool invited = false, complete = false, used = false;
  };

  Receiver(Fd control, std::string peer_address, std::vector<Port> rails,
           const ConnectionSettings& settings);
  ~Receiver() override;

  // nullptr: too many in flight.
  Request* start(void* data, size_t room, const Registration* registration);
  // True if the message has arrived. The request is then free, and its size still readable.
  bool complete(Request& request);
  // Created at the first flush. Throws Error.
  Flush& flush();
  uint32_t rails_in_use() const { return in_use_; }

 private:
  void sent(uint32_t) override {}
  void arrived(const Piece& piece) override;
  void invited(const Invitation&) override {}
  void epoch_began() override;
  void epoch_ended() override;
  void pump() override;
  Finished finished() const override;

  std::array<Request, kSlots> requests_;
  uint64_t started_ = 0;  // messages
  uint64_t next_ = 0;     // the first message that is not invited
  uint32_t in_use_ = 0;   // rails, now or in the epoch before
  std::unique_ptr<Flush> flush_;
};

}  // namespace weft::net_verbs
