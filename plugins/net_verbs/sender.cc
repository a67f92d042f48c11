// See sender.h.
#include "plugins/net_verbs/sender.h"

#include <algorithm>

namespace weft::net_verbs {

Sender::Sender(Fd control, std::string peer_address, std::vector<Port> rails,
               const ConnectionSettings& settings)
    : Connection(std::move(control), std::move(peer_address), std::move(rails), true, settings) {
  for (Request& request : requests_) request.sender = this;
}

Sender::Request* Sender::start(const void* data, size_t size, const Registration* registration) {
  Request& request = requests_[started_ % kSlots];
  if (request.used) return nullptr;
  request.used = true;
  request.message = started_++;
  request.data = reinterpret_cast<uint64_t>(data);
  request.size = size;
  request.registration = registration;
  request.unacknowledged = 0;
  request.planned = request.posted = request.complete = false;
  progress();
  return &request;
}

bool Sender::complete(Request& request) {
  if (!request.complete) progress();
  if (!request.complete) return false;
  request.used = false;
  return true;
}

void Sender::invited(const Invitation& invitation) {
  invitations_[invitation.message % kSlots] = invitation;
  is_invited_[invitation.message % kSlots] = true;
}

void Sender::epoch_began() { division_ = Division(live_lanes(), splits()); }

void Sender::epoch_ended() {
  is_invited_.fill(false);
  next_ = started_;
  for (Request& request : requests_) {
    if (!request.used || request.complete) continue;
    request.planned = request.posted = false;
    request.unacknowledged = 0;
    next_ = std::min(next_, request.message);
  }
}

void Sender::finish(Request& request) {
  request.complete = true;
  made_progress();
}

void Sender::peer_finished(const Finished& finished) {
  for (Request& request : requests_)
    if (request.used && !request.complete && finished.has(request.message)) finish(request);
}

void Sender::sent(uint32_t slot) {
  Request& request = requests_[slot];
  request.unacknowledged--;
  if (request.posted && request.unacknowledged == 0) finish(request);
}

// Messages leave in order, if the receiver has invited them and the lanes have room.
void Sender::pump() {
  while (next_ < started_) {
    Request& request = requests_[next_ % kSlots];
    if (!request.complete) {
      const Invitation& invitation = invitations_[next_ % kSlots];
      if (!is_invited_[next_ % kSlots] || invitation.message != next_) return;
      if (request.size > invitation.room)
        fail(ncclInternalError, "a message of {} bytes for {} does not fit into {}", request.size,
             peer(), invitation.room);
      if (!post_pieces(request, invitation)) return;
      is_invited_[next_ % kSlots] = false;
    }
    next_++;
  }
}

bool Sender::post_pieces(Request& request, const Invitation& invitation) {
  if (!request.planned) request.stripes = division_.divide(request.message, request.size);
  bool all = true, first = !request.planned;
  request.planned = true;
  for (size_t s = 0; s < request.stripes.count; s++) {
    Stripe& stripe = request.stripes.list[s];
    // An empty message is one piece too.
    while (stripe.begin < stripe.end || (first && stripe.end == 0)) {
      first = false;
      const uint64_t bytes = std::min<uint64_t>(Piece::kMostBytes, stripe.end - stripe.begin);
      const Piece piece{static_cast<uint32_t>(request.message % kSlots),
                        static_cast<uint32_t>(request.stripes.count),
                        stripe.begin + bytes == stripe.end, static_cast<uint32_t>(bytes)};
      const uint32_t own = lanes().own_rail(stripe.lane), other = lanes().peer_rail(stripe.lane);
      const uint32_t key =
          request.registration == nullptr ? 0 : request.registration->local_key(own);
      const bool host = request.registration == nullptr || !request.registration->is_cuda();
      if (!lanes().post(stripe.lane, piece, request.data + stripe.begin, key,
                        invitation.address + stripe.begin, invitation.keys[other], host)) {
        all = false;
        if (stripe.end == 0) request.planned = false;
        break;
      }
      request.unacknowledged++;
      stripe.begin += bytes;
    }
  }
  request.posted = all;
  return all;
}

}  // namespace weft::net_verbs
