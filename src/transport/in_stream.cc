// The receiving half of net_stream.h.
#include "src/transport/doorbell.h"
#include "src/transport/net_stream.h"
#include "src/transport/proxy.h"

namespace weft {

InStream::InStream(NetComm comm, Proxy& proxy, uint64_t ring_bytes, Doorbell& rank_door,
                   std::atomic<bool>* lost, bool segments)
    : NetStream(
          std::move(comm), proxy,
          Mapping::anonymous(sizeof(FifoControl) + kSlots * (kFifoAlign + slot_size(ring_bytes))),
          rank_door, lost),
      lead_(segments && !comm_.network().can_lend() ? kFifoAlign : 0),
      slot_bytes_(lead_ + slot_size(ring_bytes)),
      registration_(comm_.reg(ring_.data(), ring_.size())) {}

RecvPort InStream::port(int peer_rank) {
  RecvPort port;
  port.control = &fifo();
  port.data = ring_.data() + sizeof(FifoControl);
  port.size = kSlots * slot_bytes_;
  port.bell = proxy().bell();
  port.peer = peer_rank;
  port.direct = comm_.network().can_lend();
  port.stream = this;
  return port;
}

std::byte* InStream::slot(uint64_t number) const {
  return ring_.data() + sizeof(FifoControl) + number % kSlots * slot_bytes_;
}

bool InStream::progress(bool eager) noexcept {
  bool moved = false;
  while (!broken() && (body_header_ != nullptr ? receive_body(eager) : receive_some()))
    moved = true;
  return moved;
}

bool InStream::receive_some() noexcept {
  Network& network = comm_.network();
  // With detached data only one receive at a time: the next one depends on what this one brings.
  const uint64_t most = network.can_lend() ? 1 : kSlots;
  const uint64_t free = load(fifo().head) / slot_bytes_ + kSlots;
  while (flying_ < most && finished_ + flying_ < free) {
    const uint64_t number = finished_ + flying_;
    void*& request = requests_[number % kSlots];
    request = nullptr;
    const ncclResult_t code = network.irecv(comm_.get(), slot(number) + lead_, slot_bytes_ - lead_,
                                            registration_, &request);
    if (code != ncclSuccess) fail(code);
    if (request == nullptr || broken()) break;
    flying_++;
  }
  if (flying_ == 0 || broken()) return false;
  bool done = false;
  size_t size = 0;
  const ncclResult_t code = network.test(requests_[finished_ % kSlots], done, size);
  if (code != ncclSuccess) fail(code);
  if (!done || broken()) return false;
  flying_--;
  return accept_slot(size);
}

// A slot holds whole messages. The last one may be detached.
bool InStream::accept_slot(uint64_t size) noexcept {
  if (detached_.kind != 0) return accept_body(size);
  if (lead_ > 0) skip(0, lead_);
  const uint64_t end = lead_ + size;
  uint64_t at = lead_;
  while (at < end) {
    auto& header = *reinterpret_cast<MessageHeader*>(slot(finished_) + at);
    const uint64_t room = slot_bytes_ - kFifoAlign;
    const bool last = at + kFifoAlign == end, whole = at + kFifoAlign <= end;
    if (whole && header.kind == MessageHeader::kInline && header.bytes <= room - at) {
      at += kFifoAlign + fifo_round(header.bytes);
      continue;
    }
    const bool detached = last && header.kind == MessageHeader::kDetached;
    if (detached && lead_ > 0 && header.bytes <= room) {
      detached_ = header;
      if (observed()) tell_announced();
      finish_slot(at);
      return true;
    }
    if (!detached || !comm_.network().can_lend() || header.bytes > room - at) {
      fail(ncclInternalError);
      return false;
    }
    body_header_ = &header;
    body_at_ = at;
    body_ = nullptr;
    if (observed()) tell_announced();
    store(fifo().tail, finished_ * slot_bytes_ + at);
    if (at > 0) ring(rank_bell_);
    return true;
  }
  if (at != end) {
    fail(ncclInternalError);
    return false;
  }
  finish_slot(end);
  return true;
}

// The data is behind the room for its header.
bool InStream::accept_body(uint64_t size) noexcept {
  if (size != detached_.bytes) {
    fail(ncclInternalError);
    return false;
  }
  detached_.kind = MessageHeader::kInline;
  detached_.address = detached_.segment = 0;  // have no meaning here
  *reinterpret_cast<MessageHeader*>(slot(finished_)) = detached_;
  detached_.kind = 0;
  finish_slot(kFifoAlign + fifo_round(size));
  return true;
}

void InStream::skip(uint64_t at, uint64_t bytes) noexcept {
  auto& skipped = *reinterpret_cast<MessageHeader*>(slot(finished_) + at);
  skipped.kind = MessageHeader::kSkip;
  skipped.bytes = bytes;
}

bool InStream::receive_body(bool eager) noexcept {
  Network& network = comm_.network();
  if (body_ == nullptr) {
    const FifoControl& control = fifo();
    const bool asked = load(control.wanted) == finished_ * slot_bytes_ + body_at_ + 1 &&
                       control.wanted_bytes == body_header_->bytes;
    if (!asked && !eager) return false;
    body_direct_ = asked && control.wanted_address != 0;
    std::byte* to = body_direct_ ? reinterpret_cast<std::byte*>(control.wanted_address)
                                 : slot(finished_) + body_at_ + kFifoAlign;
    const ncclResult_t code =
        network.irecv(comm_.get(), to, body_header_->bytes, registration_, &body_);
    if (code != ncclSuccess) fail(code);
    if (body_ == nullptr || broken()) return false;
  }
  bool done = false;
  size_t size = 0;
  const ncclResult_t code = network.test(body_, done, size);
  if (code != ncclSuccess) fail(code);
  if (!done || broken()) return false;
  if (size != body_header_->bytes) {
    fail(ncclInternalError);
    return false;
  }
  body_header_->kind = body_direct_ ? MessageHeader::kDelivered : MessageHeader::kInline;
  body_header_->address = 0;  // has no meaning here, and some code compares whole headers
  const uint64_t used = body_at_ + kFifoAlign + (body_direct_ ? 0 : fifo_round(size));
  body_header_ = nullptr;
  finish_slot(used);
  return true;
}

// Marks the unused rest of a slot as skipped.
void InStream::finish_slot(uint64_t used) noexcept {
  if (used < slot_bytes_) skip(used, slot_bytes_ - used);
  finished_++;
  store(fifo().tail, finished_ * slot_bytes_);
  ring(rank_bell_);
  // The slot stays as it is until a receive is posted for it.
  if (observed()) tell_received(slot(finished_ - 1), used);
}

// Lanes have made no call yet, so all earlier messages are still in the ring.
void InStream::observe(std::unique_ptr<StreamObserver> observer) {
  for (uint64_t number = 0; number < finished_; number++)
    observer->received(carried(slot(number), slot_bytes_));
  NetStream::observe(std::move(observer));
}

}  // namespace weft
