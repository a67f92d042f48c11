// The sending half of lane_stream.h.
#include <cstring>

#include "src/transport/lane_stream.h"
#include "src/transport/net_abi/extension.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

constexpr size_t kFramesAt = (sizeof(LanePostRing) + 4095) / 4096 * 4096;

}  // namespace

LaneOut::LaneOut(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
                 std::atomic<bool>* lost, size_t inline_bytes,
                 std::chrono::microseconds grant_waits)
    : NetStream(std::move(comm), proxy,
                Mapping::anonymous(kFramesAt + kMostFrames * kLaneFrameBytes), rank_door, lost),
      area_(area),
      inline_bytes_(inline_bytes),
      grant_waits_(grant_waits),
      frames_registration_(comm_.reg(ring_.data() + kFramesAt, kMostFrames * kLaneFrameBytes)),
      area_registration_(comm_.reg(area_.memory.data(), area_.memory.size())),
      buffers_(area_.gpu.buffers, area_.gpu.pointers) {}

std::byte* LaneOut::frame() const {
  return ring_.data() + kFramesAt + frames_ % kMostFrames * kLaneFrameBytes;
}

bool LaneOut::unsent() const {
  LanePost next;
  // A rank leaves when nothing is to come for it. A grant may be: its producer has sent eagerly.
  if (broken() || peer_gone()) return false;
  if (flying_ > 0 || prepared_) return true;
  // Packets that are missing when the GPU has ended never come.
  return take(next) && (next.kind != LanePost::kPackets || !is_valid(next) || read_packets(next));
}

bool LaneOut::progress(bool) noexcept {
  bool moved = false;
  if (broken()) {
    give_up();
    return false;
  }
  buffers_.catch_up(comm_);
  sent_bytes_ = 0;
  while (!broken()) {
    bool again = false;
    while (flying_ < kMostFlying && sent_bytes_ < kLaneTurnBytes && send_next()) again = true;
    again = complete_some() || again;
    moved = again || moved;
    if (!again || sent_bytes_ >= kLaneTurnBytes) break;
  }
  // A proxy that has nothing to do sleeps, but this stream has something soon.
  return moved || (waits_since_ != Clock::time_point{} && !has_waited());
}

// Nobody will send what is left. The connection is closed, so nobody reads it either: the GPU need
// not wait for it.
void LaneOut::give_up() noexcept {
  comm_ = {};
  for (; flying_ > 0; flying_--) {
    if (flights_[first_].body) count_sent();
    first_ = (first_ + 1) % kMostFlying;
  }
  for (; body_ < end_of_bodies_; body_++) count_sent();
  prepared_ = false;
  waits_since_ = {};
  LanePost post;
  while (take(post)) {
    if (post.bytes > 0) count_sent();
    store(posts().taken, ++taken_);
  }
}

// The next post, if all of it has arrived.
bool LaneOut::take(LanePost& post) const noexcept {
  const auto& halves = posts().posts[taken_ % kLanePosts];
  const auto flag = static_cast<uint32_t>(taken_ + 1);
  uint32_t words[sizeof(LanePost) / 4];
  size_t n = 0;
  for (const PostedWords& half : halves) {
    if (__atomic_load_n(&half.flag0, __ATOMIC_ACQUIRE) != flag ||
        __atomic_load_n(&half.flag1, __ATOMIC_ACQUIRE) != flag)
      return false;
    words[n++] = __atomic_load_n(&half.data0, __ATOMIC_RELAXED);
    words[n++] = __atomic_load_n(&half.data1, __ATOMIC_RELAXED);
  }
  std::memcpy(&post, words, sizeof post);
  return true;
}

// The data of a post that does not fit into a frame.
bool LaneOut::find_body(const LanePost& post) noexcept {
  Body body;
  body.bytes = post.bytes;
  if ((post.kind & LanePost::kFromPlace) != 0) {
    const NicRegistrations::Memory memory = buffers_.find(post.from, post.bytes);
    if (memory.data == nullptr) return false;
    body.data = memory.data;
    body.registration = memory.registration;
    body.on_gpu = true;
    buffers_.count_sent();
  } else {
    if (!area_.has(post.from, post.bytes)) return false;
    body.on_gpu = (post.kind & LanePost::kLarge) != 0 && !area_.gpu.memory.empty();
    body.data = area_.data(post.from, body.on_gpu);
    body.registration = body.on_gpu ? area_.gpu.registration : area_registration_;
  }
  bodies_[end_of_bodies_++] = body;
  return true;
}

// Whether a message of packets lies in the area, and fits into a frame.
bool LaneOut::is_valid(const LanePost& packets) const noexcept {
  return packets.bytes % kPacketData == 0 && packets.bytes <= kMostPacketData &&
         area_.has(packets.from, packets.bytes / kPacketData * sizeof(PostedWords));
}

// Whether all packets are there. Copies what they carry, unless `to` is nullptr.
bool LaneOut::read_packets(const LanePost& post, std::byte* to) const noexcept {
  const auto* at = reinterpret_cast<const PostedWords*>(area_.memory.data() + post.from);
  for (uint32_t w = 0; w < post.bytes / kPacketData; w++) {
    const PostedWords& packet = at[w];
    if (__atomic_load_n(&packet.flag0, __ATOMIC_ACQUIRE) != post.call ||
        __atomic_load_n(&packet.flag1, __ATOMIC_ACQUIRE) != (post.call ^ post.value))
      return false;
    const uint32_t words[] = {__atomic_load_n(&packet.data0, __ATOMIC_RELAXED),
                              __atomic_load_n(&packet.data1, __ATOMIC_RELAXED)};
    if (to != nullptr) std::memcpy(to + w * kPacketData, words, sizeof words);
  }
  return true;
}

bool LaneOut::has_waited() const noexcept { return Clock::now() - waits_since_ >= grant_waits_; }

// Puts as many posts as there are into a frame. The peer may want the data of large messages on its
// GPU, so these are never in a frame.
bool LaneOut::prepare() noexcept {
  std::byte* const to = frame();
  size_t used = 0;
  body_ = end_of_bodies_ = 0;
  LanePost post;
  const uint64_t first = taken_;
  uint32_t granted = granted_;
  bool waits = true;  // the frame has nothing but grants that may wait
  while (end_of_bodies_ < kLaneFrameBodies &&
         used + sizeof(WirePost) + inline_bytes_ <= kLaneFrameBytes && take(post)) {
    WirePost wire{post.word, post.call, post.value, post.bytes, post.to, post.kind, post.codec};
    wire.kind &= ~(LanePost::kFromPlace | LanePost::kWaits);
    if (post.kind == LanePost::kPackets) {
      if (!is_valid(post)) {
        fail(ncclInternalError);
        return false;
      }
      if (used + sizeof wire + padded(post.bytes) > kLaneFrameBytes ||
          !read_packets(post, to + used + sizeof wire)) {
        if (used == 0 && waits_since_ == Clock::time_point{}) waits_since_ = Clock::now();
        break;
      }
      waits = false;
      count_sent();
      std::memcpy(to + used, &wire, sizeof wire);
      used += sizeof wire + padded(post.bytes);
      taken_++;
      continue;
    }
    waits = waits && (post.kind & LanePost::kWaits) != 0;
    if ((post.kind & LanePost::kWaits) != 0) {
      // Without a grant of the call before, the peer waits for this one: data may not come first.
      waits = waits && post.call == granted + 1;
      granted = post.call;
    }
    const bool follows = post.bytes > ((post.kind & LanePost::kLarge) != 0 ? 0 : inline_bytes_);
    if (post.bytes > 0 && !(follows ? find_body(post) : area_.has(post.from, post.bytes))) {
      fail(ncclInternalError);
      return false;
    }
    if (follows) {
      wire.kind |= WirePost::kBodyFollows;
    } else if (post.bytes > 0) {
      std::memcpy(to + used + sizeof wire, area_.memory.data() + post.from, post.bytes);
      count_sent();
    }
    std::memcpy(to + used, &wire, sizeof wire);
    used += sizeof wire + (follows ? 0 : padded(post.bytes));
    taken_++;
  }
  if (used == 0) return false;
  if (waits && waits_since_ == Clock::time_point{}) waits_since_ = Clock::now();
  if (waits && !has_waited()) {
    taken_ = first;
    return false;
  }
  waits_since_ = {};
  granted_ = granted;
  store(posts().taken, taken_);
  frame_bytes_ = used;
  frame_sent_ = false;
  prepared_ = true;
  return true;
}

// The next frame, or the data that follows it. A message of its own costs a system call more, but a
// plugin may lend only that.
bool LaneOut::send_next() noexcept {
  if (!prepared_ && (frames_flying_ == kMostFrames || !prepare())) return false;
  Network& network = comm_.network();
  const Body* body = body_ < end_of_bodies_ ? &bodies_[body_] : nullptr;
  Flight next;
  next.frame = !frame_sent_;
  const bool two = next.frame && body != nullptr && body->bytes < net_abi::kLeastLoan &&
                   !body->on_gpu && network.can_lend();
  next.body = !next.frame || two;
  const ncclResult_t code =
      two ? network.isend_two(comm_.get(), frame(), frame_bytes_, body->data, body->bytes,
                              &next.request)
      : next.frame
          ? network.isend(comm_.get(), frame(), frame_bytes_, frames_registration_, &next.request)
          : network.isend(comm_.get(), body->data, body->bytes, body->registration, &next.request);
  if (code != ncclSuccess) fail(code);
  if (next.request == nullptr || broken()) return false;
  if (next.frame) {
    frame_sent_ = true;
    sent_bytes_ += frame_bytes_;
    frames_++;
    frames_flying_++;
  }
  if (next.body) {
    sent_bytes_ += body->bytes;
    body_++;
  }
  flights_[(first_ + flying_) % kMostFlying] = next;
  flying_++;
  prepared_ = body_ < end_of_bodies_;
  return true;
}

bool LaneOut::complete_some() noexcept {
  bool moved = false;
  while (flying_ > 0 && !broken()) {
    const Flight& flight = flights_[first_];
    bool done = false;
    size_t size = 0;
    const ncclResult_t code = comm_.network().test(flight.request, done, size);
    if (code != ncclSuccess) fail(code);
    if (!done || broken()) return moved;
    if (flight.body) count_sent();
    if (flight.frame) frames_flying_--;
    first_ = (first_ + 1) % kMostFlying;
    flying_--;
    moved = true;
  }
  return moved;
}

}  // namespace weft
