// The sending half of net_stream.h.
#include <cstring>

#include "src/base/error.h"
#include "src/transport/doorbell.h"
#include "src/transport/net_stream.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

std::byte* bytes_of(const Mapping& ring) { return ring.data() + sizeof(FifoControl); }

}  // namespace

OutStream::OutStream(NetComm comm, Proxy& proxy, uint64_t ring_bytes, Doorbell& rank_door,
                     std::atomic<bool>* lost, bool segments)
    : NetStream(std::move(comm), proxy, Mapping::anonymous(sizeof(FifoControl) + ring_bytes),
                rank_door, lost),
      ring_bytes_(ring_bytes),
      segments_(segments && !comm_.network().can_lend()),
      registration_(comm_.reg(ring_.data(), ring_.size())),
      registered_(comm_, proxy) {}

SendPort OutStream::port(int peer_rank) {
  SendPort port;
  port.control = &fifo();
  port.data = bytes_of(ring_);
  port.size = ring_bytes_;
  port.bell = proxy().bell();
  port.peer = peer_rank;
  port.lending = segments_ ? Lending::kSegment : Lending::kNever;
  if (comm_.network().can_lend()) port.lending = Lending::kPointer;
  port.stream = this;
  return port;
}

bool OutStream::unsent() const { return !broken() && (flying_ > 0 || taken_ < load(fifo().tail)); }

bool OutStream::progress(bool) noexcept {
  bool moved = false;
  // Also on a broken connection: whoever frees memory waits for this.
  if (segments_ && !registered_.tidy(load(fifo().head)))
    fail(ncclInvalidUsage);  // the caller freed it during its call
  while (!broken()) {
    bool again = false;
    while ((flying_ < kMostFlying || body_.data != nullptr) && send_next()) again = true;
    again = complete_some() || again;
    if (!again) break;
    moved = true;
  }
  return moved;
}

bool OutStream::complete_some() noexcept {
  bool moved = false;
  while (flying_ > 0 && !broken()) {
    Flight& flight = flights_[first_];
    for (void** request : {&flight.request, &flight.body}) {
      if (*request == nullptr) continue;
      bool done = false;
      size_t size = 0;
      const ncclResult_t code = comm_.network().test(*request, done, size);
      if (code != ncclSuccess) fail(code);
      if (!done || broken()) return moved;
      *request = nullptr;
    }
    if (flying_ == 1 && body_.data != nullptr) break;
    store(fifo().head, flight.end);
    ring(rank_bell_);
    if (observed()) tell_landed();
    first_ = (first_ + 1) % kMostFlying;
    flying_--;
    moved = true;
  }
  return moved;
}

// Hands the next messages to the network: as many as fit into the peer's slot. A message with lent
// data is the last one, and its data goes along.
bool OutStream::send_next() noexcept {
  if (body_.data != nullptr) return send_body();
  const uint64_t tail = load(fifo().tail), room = slot_size(ring_bytes_);
  uint64_t begin = taken_, end = taken_;
  const MessageHeader* lent = nullptr;
  while (end < tail && lent == nullptr) {
    auto& header = *reinterpret_cast<MessageHeader*>(bytes_of(ring_) + end % ring_bytes_);
    if (header.kind == MessageHeader::kSkip) {
      if (end != begin) break;
      begin = end = end + header.bytes;
      continue;
    }
    if (end != begin && end % ring_bytes_ == 0) break;  // wraps around: not contiguous
    const uint64_t whole = kFifoAlign + fifo_round(header.bytes);
    if (end - begin + whole > room && end != begin) break;
    if (header.kind == MessageHeader::kInline) {
      end += whole;
    } else {
      header.kind = MessageHeader::kDetached;
      lent = &header;
      end += kFifoAlign;
    }
  }
  if (begin == end) return false;
  if (observed()) tell_announced();
  std::byte* data = bytes_of(ring_) + begin % ring_bytes_;
  void* request = nullptr;
  Network& network = comm_.network();
  if (lent != nullptr && segments_ && !prepare_body(*lent, end)) return false;
  const ncclResult_t code =
      lent == nullptr || segments_
          ? network.isend(comm_.get(), data, end - begin, registration_, &request)
          : network.isend_two(comm_.get(), data, end - begin,
                              reinterpret_cast<void*>(lent->address), lent->bytes, &request);
  if (code != ncclSuccess) fail(code);
  if (request == nullptr || broken()) {
    if (body_.data == copy_place_.data) copy_until_ = 0;  // the copy is made again
    body_ = {};
    return false;
  }
  flights_[(first_ + flying_) % kMostFlying] = {request, end};
  flying_++;
  taken_ = end;
  if (observed()) tell_sent(data, end - begin);
  if (body_.data != nullptr) send_body();
  return true;
}

// Says where the data of a message is that lies in a segment. False: not now.
bool OutStream::prepare_body(const MessageHeader& header, uint64_t end) noexcept {
  const SegmentRegistrations::Memory memory = registered_.find(header.segment, end);
  if (memory.data == nullptr) {  // the caller freed it during its call
    fail(ncclInvalidUsage);
    return false;
  }
  std::byte* data = memory.data + header.address;
  if (memory.registration != nullptr) {
    body_ = {data, header.bytes, memory.registration};
    return true;
  }
  if (copy_until_ > load(fifo().head)) return false;
  try {
    if (copy_place_.data == nullptr) {
      copy_ = Mapping::anonymous(slot_size(ring_bytes_));
      copy_place_ = {copy_.data(), 0, comm_.reg(copy_.data(), copy_.size())};
    }
  } catch (const Error& error) {
    fail(error.code());
    return false;
  }
  std::memcpy(copy_place_.data, data, header.bytes);
  body_ = {copy_place_.data, header.bytes, copy_place_.registration};
  copy_until_ = end;
  return true;
}

bool OutStream::send_body() noexcept {
  Flight& flight = flights_[(first_ + flying_ - 1) % kMostFlying];
  const ncclResult_t code =
      comm_.network().isend(comm_.get(), body_.data, body_.bytes, body_.registration, &flight.body);
  if (code != ncclSuccess) fail(code);
  if (flight.body == nullptr || broken()) return false;
  body_ = {};
  return true;
}

}  // namespace weft
