// See net_stream.h.
#include "src/transport/net_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/transport/doorbell.h"
#include "src/transport/proxy.h"

namespace weft {

uint64_t slot_size(uint64_t ring_bytes) { return ring_bytes / 2 / kFifoAlign * kFifoAlign; }

NetStream::NetStream(NetComm comm, Proxy& proxy, Mapping ring, Doorbell& rank_door,
                     std::atomic<bool>* lost)
    : memory_(std::make_shared<const Mapping>(std::move(ring))),
      comm_(std::move(comm)),
      proxy_(proxy),
      lost_(lost),
      takes_help_(comm_ && comm_.network().can_lend()) {
  rank_bell_.door = &rank_door;
}

bool NetStream::look(uint32_t round, Clock::time_point now, bool patient) noexcept {
  // Asking the kernel takes longer than polling all rings of a proxy. After kHotLooks polls without
  // news every fourth round is enough, since rounds are shorter then. After about a millisecond
  // every 16th is enough.
  constexpr uint32_t kHotLooks = 20, kWarmRounds = 4, kWarmLooks = 270, kColdRounds = 16;
  constexpr auto kHotTime = std::chrono::microseconds(150);  // more than a ping-pong between GPUs
  const uint32_t rounds = fruitless_ > kWarmLooks ? kColdRounds : kWarmRounds;
  const bool hot = fruitless_ <= kHotLooks || (patient && now - last_news_ <= kHotTime);
  if (!hot && asks_kernel() && round % rounds != 0) return false;
  const bool moved = progress(true);
  fruitless_ = moved ? 0 : std::min(fruitless_ + 1, kWarmLooks + 1);
  if (moved) last_news_ = now;
  return moved;
}

int NetStream::waits_for(pollfd* descriptors, int most) const noexcept {
  if (broken_ || idle()) return 0;
  return comm_.network().waits_for(comm_.get(), descriptors, most);
}

void NetStream::abandon() noexcept {
  broken_ = true;
  comm_ = {};
}

void NetStream::observe(std::unique_ptr<StreamObserver> observer) {
  if (observers_ == nullptr) observers_ = std::make_unique<Observers>();
  observers_->push_back(std::move(observer));
}

void NetStream::tell_announced() noexcept {
  for (const auto& observer : *observers_) observer->announced();
}

void NetStream::tell_sent(const std::byte* data, uint64_t bytes) noexcept {
  for (const auto list = carried(data, bytes); const auto& observer : *observers_)
    observer->sent(list);
}

void NetStream::tell_landed() noexcept {
  for (const auto& observer : *observers_) observer->landed();
}

void NetStream::tell_received(const std::byte* data, uint64_t bytes) noexcept {
  for (const auto list = carried(data, bytes); const auto& observer : *observers_)
    observer->received(list);
}

std::vector<CarriedMessage> NetStream::carried(const std::byte* data, uint64_t bytes) {
  std::vector<CarriedMessage> list;
  for (uint64_t at = 0; at < bytes;) {
    const auto& header = *reinterpret_cast<const MessageHeader*>(data + at);
    if (header.kind == MessageHeader::kSkip) {
      at += header.bytes;
      continue;
    }
    list.push_back({header.sequence, header.bytes});
    at += kFifoAlign + (header.kind == MessageHeader::kInline ? fifo_round(header.bytes) : 0);
  }
  return list;
}

// Data that has arrived can still be read. No more will come.
void NetStream::fail(ncclResult_t code, std::string why) noexcept {
  if (broken_) return;
  failure_ = {code, std::move(why)};
  WEFT_INFO(kNet, "a connection ended with code {}: {}", static_cast<int>(code), failure_.text);
  broken_ = true;
  if (lost_ != nullptr) lost_->store(true);
  ring(rank_bell_);
}

}  // namespace weft
