// The receiving half of lane_stream.h.
#include <cstring>

#include "src/transport/lane_stream.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

uint32_t kind_of(const WirePost& post) {
  return post.kind & ~(WirePost::kBodyFollows | LanePost::kLarge | LanePost::kToPlace);
}

}  // namespace

LaneIn::LaneIn(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
               std::atomic<bool>* lost)
    : NetStream(std::move(comm), proxy, Mapping::anonymous(kLaneFrameBytes), rank_door, lost),
      area_(area),
      frame_registration_(comm_.reg(ring_.data(), ring_.size())),
      area_registration_(comm_.reg(area_.memory.data(), area_.memory.size())),
      buffers_(area_.gpu.buffers, area_.gpu.pointers) {}

bool LaneIn::progress(bool) noexcept {
  bool moved = false;
  if (broken()) {
    comm_ = {};  // nobody writes any more
    return false;
  }
  buffers_.catch_up(comm_);
  while (!broken() && receive_next()) moved = true;
  return moved;
}

NicRegistrations::Memory LaneIn::target(const WirePost& post) const noexcept {
  if ((post.kind & LanePost::kToPlace) != 0) return buffers_.find(post.to, post.bytes);
  const bool gpu = on_gpu(post);
  return {area_.data(post.to, gpu), gpu ? area_.gpu.registration : area_registration_};
}

// In the order of messages: the data that a frame announces, then a frame.
void LaneIn::post_receives() noexcept {
  Network& network = comm_.network();
  while (flying_ < receives_.size()) {
    // What follows a frame is known when it has come.
    if (flying_ > 0 && !receives_[flying_ - 1].body) break;
    Receive& next = receives_[flying_];
    next = {};
    next.body = owes_body_;
    next.post = owed_;
    const NicRegistrations::Memory to = target(owed_);
    const ncclResult_t code = owes_body_ ? network.irecv(comm_.get(), to.data, owed_.bytes,
                                                         to.registration, &next.request)
                                         : network.irecv(comm_.get(), ring_.data(), kLaneFrameBytes,
                                                         frame_registration_, &next.request);
    if (code != ncclSuccess) fail(code);
    if (next.request == nullptr || broken()) break;
    owes_body_ = false;
    flying_++;
  }
}

bool LaneIn::receive_next() noexcept {
  if (flush_ != nullptr && !end_flush()) return false;
  post_receives();
  if (flying_ == 0 || broken()) return false;
  bool done = false;
  size_t size = 0;
  const Receive first = receives_[0];
  ncclResult_t code = comm_.network().test(first.request, done, size);
  if (code != ncclSuccess) fail(code);
  if (!done || broken()) return false;
  receives_[0] = receives_[1];
  flying_--;
  if (!first.body) return read_frame(size);
  if (size != first.post.bytes) {
    fail(ncclInternalError);
    return false;
  }
  if ((first.post.kind & LanePost::kToPlace) != 0) buffers_.count_received();
  if (on_gpu(first.post) && area_.gpu.needs_flush) {
    const NicRegistrations::Memory to = target(first.post);
    code = comm_.network().flush(comm_.get(), to.data, static_cast<int>(first.post.bytes),
                                 to.registration, &flush_);
    if (code != ncclSuccess) fail(code);
    flushed_ = first.post;
    if (flush_ != nullptr || broken()) return !broken();
  }
  publish(first.post);
  return true;
}

bool LaneIn::end_flush() noexcept {
  bool done = false;
  size_t size = 0;
  const ncclResult_t code = comm_.network().test(flush_, done, size);
  if (code != ncclSuccess) fail(code);
  if (!done || broken()) return false;
  flush_ = nullptr;
  publish(flushed_);
  return true;
}

bool LaneIn::is_valid(const WirePost& post) const noexcept {
  const uint32_t kind = kind_of(post);
  const size_t word = kind == LanePost::kGrant ? 16 : 8;
  if (kind > LanePost::kGrant || post.codec != 0 || post.word % word != 0 ||
      post.word + word > area_.words_bytes)
    return false;
  if (post.bytes == 0) return true;
  if ((post.kind & LanePost::kToPlace) == 0) return area_.has(post.to, post.bytes);
  return (post.kind & WirePost::kBodyFollows) != 0 && on_gpu(post) && target(post).data != nullptr;
}

bool LaneIn::read_frame(size_t size) noexcept {
  const std::byte* const from = ring_.data();
  size_t at = 0;
  bool good = size <= kLaneFrameBytes;
  while (good && at < size && !owes_body_) {
    WirePost post;
    good = size - at >= sizeof post;
    if (!good) break;
    std::memcpy(&post, from + at, sizeof post);
    at += sizeof post;
    good = is_valid(post);
    if (!good) break;
    if ((post.kind & WirePost::kBodyFollows) != 0) {
      good = post.bytes > 0;
      owes_body_ = true;
      owed_ = post;
      continue;
    }
    good = post.bytes <= size - at && (post.bytes == 0 || !on_gpu(post));
    if (!good) break;
    if (post.bytes > 0) std::memcpy(area_.memory.data() + post.to, from + at, post.bytes);
    at += (post.bytes + 15) / 16 * 16;
    publish(post);
  }
  if (good && at >= size) return true;
  fail(ncclInternalError);
  return false;
}

// The GPU polls the word, and then reads the data.
void LaneIn::publish(const WirePost& post) noexcept {
  std::byte* const at = area_.memory.data() + post.word;
  if (kind_of(post) == LanePost::kGrant) {
    // As a Packet of the lane kernel: data, flag, data, flag. The data is a place.
    auto* halves = reinterpret_cast<uint64_t*>(at);
    const uint64_t second = uint64_t{post.call ^ post.value} << 32 | post.to >> 32;
    __atomic_store_n(&halves[1], second, __ATOMIC_RELEASE);
    __atomic_store_n(&halves[0], uint64_t{post.call} << 32 | (post.to & 0xffffffffu),
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), uint64_t{post.call} << 32 | post.value,
                     __ATOMIC_RELEASE);
  }
}

}  // namespace weft
