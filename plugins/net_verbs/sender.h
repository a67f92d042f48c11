// The sending end of a connection. A message waits for the receiver's invitation. Then the sender
// writes it directly into the receiver's memory, in stripes over the lanes. One thread at a time.
#pragma once

#include <array>

#include "plugins/net_verbs/connection.h"
#include "plugins/net_verbs/registration.h"

namespace weft::net_verbs {

class Sender final : public Connection {
 public:
  struct Request {
    Sender* sender = nullptr;
    uint64_t message = 0, data = 0, size = 0;
    const Registration* registration = nullptr;
    Stripes stripes;  // `begin` advances while pieces are posted
    uint32_t unacknowledged = 0;
    bool planned = false, posted = false, complete = false, used = false;
  };

  Sender(Fd control, std::string peer_address, std::vector<Port> rails,
         const ConnectionSettings& settings);

  // nullptr: too many in flight.
  Request* start(const void* data, size_t size, const Registration* registration);
  // True if the receiver's device has the whole message. The request is then free.
  bool complete(Request& request);

 private:
  void sent(uint32_t slot) override;
  void arrived(const Piece&) override {}
  void invited(const Invitation& invitation) override;
  void epoch_began() override;
  void epoch_ended() override;
  void pump() override;
  void peer_finished(const Finished& finished) override;
  bool post_pieces(Request& request, const Invitation& invitation);
  void finish(Request& request);

  std::array<Request, kSlots> requests_;
  std::array<Invitation, kSlots> invitations_;
  std::array<bool, kSlots> is_invited_{};
  uint64_t started_ = 0;  // messages
  uint64_t next_ = 0;     // the first message that is not completely posted
  Division division_;
};

}  // namespace weft::net_verbs
