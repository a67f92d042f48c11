// See receiver.h.
#include "plugins/net_verbs/receiver.h"

#include <algorithm>

namespace weft::net_verbs {

Receiver::Receiver(Fd control, std::string peer_address, std::vector<Port> rails,
                   const ConnectionSettings& settings)
    : Connection(std::move(control), std::move(peer_address), std::move(rails), false, settings) {
  for (Request& request : requests_) request.receiver = this;
}

// The last acknowledgement may not have left this device. The sender learns here that its messages
// have arrived.
Receiver::~Receiver() {
  if (!broken()) control().say(Word::kBye, Bye{finished()});
}

Receiver::Request* Receiver::start(void* data, size_t room, const Registration* registration) {
  Request& request = requests_[started_ % kSlots];
  if (request.used) return nullptr;
  request.used = true;
  request.invitation = {started_++, reinterpret_cast<uint64_t>(data), room, {}};
  request.registration = registration;
  request.size = 0;
  request.stripes_done = 0;
  request.invited = request.complete = false;
  progress();
  return &request;
}

bool Receiver::complete(Request& request) {
  if (!request.complete) progress();
  if (!request.complete) return false;
  request.used = false;
  return true;
}

Flush& Receiver::flush() {
  if (flush_ == nullptr) flush_ = std::make_unique<Flush>(rails());
  return *flush_;
}

void Receiver::arrived(const Piece& piece) {
  Request& request = requests_[piece.slot];
  if (!request.used || request.complete || !request.invited)
    fail(ncclInternalError, "{} sent what nobody asked for: the stream is out of step", peer());
  request.size += piece.bytes;
  if (piece.last) request.stripes_done++;
  if (request.stripes_done < piece.stripes) return;
  request.complete = true;
  made_progress();
}

void Receiver::epoch_began() {
  in_use_ = 0;
  for (const LaneRate& lane : live_lanes()) in_use_ |= 1u << lanes().own_rail(lane.lane);
}

void Receiver::epoch_ended() {
  next_ = started_;
  for (Request& request : requests_) {
    if (!request.used || request.complete) continue;
    request.size = 0;
    request.stripes_done = 0;
    request.invited = false;
    next_ = std::min(next_, request.invitation.message);
  }
}

void Receiver::pump() {
  for (; next_ < started_; next_++) {
    Request& request = requests_[next_ % kSlots];
    if (request.complete || request.invited) continue;
    for (uint32_t r = 0; r < rails().size() && request.registration != nullptr; r++)
      if ((in_use_ >> r & 1) != 0) request.invitation.keys[r] = request.registration->remote_key(r);
    if (!lanes().post(live_lanes().front().lane, request.invitation)) return;
    request.invited = true;
  }
}

Finished Receiver::finished() const {
  Finished finished;
  finished.before = started_;
  for (const Request& request : requests_)
    if (request.used && !request.complete)
      finished.before = std::min(finished.before, request.invitation.message);
  // Includes messages whose request is free again. They stay complete until the slot is reused.
  for (const Request& request : requests_)
    if (request.complete && request.invitation.message > finished.before)
      finished.also |= 1u << (request.invitation.message - finished.before);
  return finished;
}

}  // namespace weft::net_verbs
