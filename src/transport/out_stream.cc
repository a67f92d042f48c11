// The sending half of net_stream.h.
#include "src/transport/doorbell.h"
#include "src/transport/net_stream.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

std::byte* bytes_of(const Mapping& ring) { return ring.data() + sizeof(FifoControl); }

}  // namespace

OutStream::OutStream(NetComm comm, Proxy& proxy, uint64_t ring_bytes, Doorbell& rank_door,
                     std::atomic<bool>* lost)
    : NetStream(std::move(comm), proxy, Mapping::anonymous(sizeof(FifoControl) + ring_bytes),
                rank_door, lost),
      ring_bytes_(ring_bytes),
      registration_(comm_.reg(ring_.data(), ring_.size())) {}

SendPort OutStream::port(int peer_rank) {
  SendPort port;
  port.control = &fifo();
  port.data = bytes_of(ring_);
  port.size = ring_bytes_;
  port.bell = proxy().bell();
  port.peer = peer_rank;
  port.lending = comm_.network().can_lend() ? Lending::kPointer : Lending::kNever;
  port.stream = this;
  return port;
}

bool OutStream::unsent() const { return !broken() && (flying_ > 0 || taken_ < load(fifo().tail)); }

bool OutStream::progress(bool) noexcept {
  bool moved = false;
  while (!broken()) {
    bool again = false;
    while (flying_ < kMostFlying && send_next()) again = true;
    again = complete_some() || again;
    if (!again) break;
    moved = true;
  }
  return moved;
}

bool OutStream::complete_some() noexcept {
  bool moved = false;
  while (flying_ > 0 && !broken()) {
    const Flight& flight = flights_[first_];
    bool done = false;
    size_t size = 0;
    const ncclResult_t code = comm_.network().test(flight.request, done, size);
    if (code != ncclSuccess) fail(code);
    if (!done || broken()) break;
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
  const ncclResult_t code =
      lent == nullptr
          ? network.isend(comm_.get(), data, end - begin, registration_, &request)
          : network.isend_two(comm_.get(), data, end - begin,
                              reinterpret_cast<void*>(lent->address), lent->bytes, &request);
  if (code != ncclSuccess) fail(code);
  if (request == nullptr || broken()) return false;
  flights_[(first_ + flying_) % kMostFlying] = {request, end};
  flying_++;
  taken_ = end;
  if (observed()) tell_sent(data, end - begin);
  return true;
}

}  // namespace weft
