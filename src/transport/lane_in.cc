// The receiving half of lane_stream.h.
#include <cstring>

#include "src/transport/lane_stream.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

uint32_t kind_of(const WirePost& post) {
  return post.kind & ~(WirePost::kBodyFollows | LanePost::kLarge | LanePost::kToPlace);
}

// As a Packet of the lane kernel. It may come in two halves, each with its flag.
void write_packet(PostedWords* at, uint32_t data0, uint32_t data1, uint32_t call,
                  uint32_t signature) {
  auto* halves = reinterpret_cast<uint64_t*>(at);
  __atomic_store_n(&halves[1], uint64_t{call ^ signature} << 32 | data1, __ATOMIC_RELEASE);
  __atomic_store_n(&halves[0], uint64_t{call} << 32 | data0, __ATOMIC_RELEASE);
}

}  // namespace

LaneIn::LaneIn(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
               std::atomic<bool>* lost)
    : NetStream(std::move(comm), proxy, Mapping::anonymous(kLaneFrameBytes), rank_door, lost),
      area_(area),
      frame_registration_(comm_.reg(ring_.data(), ring_.size())),
      area_registration_(comm_.reg(area_.memory.data(), area_.memory.size())),
      buffers_(area_.gpu.buffers, area_.gpu.pointers),
      in_order_(comm_.network().can_lend()) {}

bool LaneIn::progress(bool) noexcept {
  bool moved = false;
  if (broken()) {
    comm_ = {};  // nobody writes any more
    return false;
  }
  buffers_.catch_up(comm_);
  received_bytes_ = 0;
  while (!broken()) {
    bool again = read_posts();
    post_receives();
    again = receive_bodies() || again;
    again = tell() || again;
    again = receive_frame() || again;
    moved = again || moved;
    if (!again || received_bytes_ >= kLaneTurnBytes) break;
  }
  look_at_end();
  return moved;
}

NicRegistrations::Memory LaneIn::target(const WirePost& post) const noexcept {
  if ((post.kind & LanePost::kToPlace) != 0) return buffers_.find(post.to, post.bytes);
  const bool gpu = on_gpu(post);
  return {area_.data(post.to, gpu), gpu ? area_.gpu.registration : area_registration_};
}

// The posts of the last frame, as far as there is room for those that must wait.
bool LaneIn::read_posts() noexcept {
  bool moved = false;
  while (frame_at_ < frame_bytes_ && read_ - told_ < kMostArrivals && !broken()) {
    if (!read_post()) fail(ncclInternalError);
    moved = true;
  }
  return moved && !broken();
}

// False: the peer has sent nonsense.
bool LaneIn::read_post() noexcept {
  const std::byte* const from = ring_.data() + frame_at_;
  size_t left = frame_bytes_ - frame_at_;
  WirePost post;
  if (left < sizeof post) return false;
  std::memcpy(&post, from, sizeof post);
  left -= sizeof post;
  frame_at_ += sizeof post;
  if (post.kind == LanePost::kPackets) {
    if (post.bytes > kMostPacketData || padded(post.bytes) > left ||
        !write_packets(post, from + sizeof post))
      return false;
    frame_at_ += padded(post.bytes);
    return true;
  }
  if (!is_valid(post)) return false;
  const bool follows = (post.kind & WirePost::kBodyFollows) != 0;
  if (follows && post.bytes == 0) return false;
  if (!follows && post.bytes > 0) {
    const size_t whole = padded(post.bytes);
    if (whole > left || on_gpu(post)) return false;
    std::memcpy(area_.memory.data() + post.to, from + sizeof post, post.bytes);
    frame_at_ += whole;
  }
  if (!follows && told_ == read_) {
    publish(post);
    return true;
  }
  arrival(read_++) = {follows ? Arrival::kAwaited : Arrival::kHere, post, {}, nullptr};
  return true;
}

// At once, whatever came before: packets show themselves when they are there.
bool LaneIn::write_packets(const WirePost& post, const std::byte* from) noexcept {
  const uint64_t count = post.bytes / kPacketData, size = count * sizeof(PostedWords);
  if (post.bytes % kPacketData != 0 || post.to % sizeof(PostedWords) != 0 || post.codec != 0 ||
      post.to > area_.words_bytes || size > area_.words_bytes - post.to)
    return false;
  auto* to = reinterpret_cast<PostedWords*>(area_.memory.data() + post.to);
  for (uint64_t i = 0; i < count; i++) {
    uint32_t words[2];
    std::memcpy(words, from + i * kPacketData, sizeof words);
    write_packet(to + i, words[0], words[1], post.call, post.value);
  }
  return true;
}

// In the order of messages: the data that a frame announces, then the next frame.
void LaneIn::post_receives() noexcept {
  if (broken()) return;
  Network& network = comm_.network();
  for (; posted_ < read_; posted_++) {
    Arrival& next = arrival(posted_);
    if (next.state != Arrival::kAwaited) continue;
    if (receiving_ == kMostReceiving) return;
    next.to = target(next.post);
    const ncclResult_t code = next.to.data == nullptr
                                  ? ncclInternalError
                                  : network.irecv(comm_.get(), next.to.data, next.post.bytes,
                                                  next.to.registration, &next.request);
    if (code != ncclSuccess) fail(code);
    if (next.request == nullptr || broken()) return;
    next.state = Arrival::kReceiving;
    receiving_++;
  }
  if (frame_request_ != nullptr || frame_at_ < frame_bytes_ || no_frames_ != ncclSuccess) return;
  const ncclResult_t code = network.irecv(comm_.get(), ring_.data(), kLaneFrameBytes,
                                          frame_registration_, &frame_request_);
  if (code != ncclSuccess) end_frames(code);
}

// A peer that has sent everything may close the connection. What it has sent comes before that
// counts. All of it is here, or on the way from the NIC to the GPU.
void LaneIn::end_frames(ncclResult_t code) noexcept {
  no_frames_ = code;
  no_frames_text_ = comm_.network().reason();
  frame_request_ = nullptr;
  ended_ = Clock::now();
}

void LaneIn::look_at_end() noexcept {
  if (no_frames_ == ncclSuccess || broken()) return;
  constexpr auto kOnTheWay = std::chrono::seconds(2);
  if ((told_ == read_ && frame_at_ == frame_bytes_) || Clock::now() - ended_ > kOnTheWay)
    fail(no_frames_, no_frames_text_);
}

bool LaneIn::is_done(void* request, size_t& size) noexcept {
  bool done = false;
  const ncclResult_t code = comm_.network().test(request, done, size);
  if (code != ncclSuccess) fail(code);
  return done && !broken();
}

// One after the other, where a test of a request moves its data: the GPU goes on with the first one
// meanwhile.
bool LaneIn::receive_bodies() noexcept {
  bool moved = false;
  for (; received_ < posted_ && flushing_ < kMostFlushing && !broken(); received_++) {
    if (in_order_ && moved) break;
    Arrival& next = arrival(received_);
    if (next.state == Arrival::kReceiving) {
      size_t size = 0;
      if (!is_done(next.request, size)) return moved;
      receiving_--;
      received_bytes_ += size;
      next.state = Arrival::kHere;
      if (size != next.post.bytes) {
        fail(ncclInternalError);
        return false;
      }
      if ((next.post.kind & LanePost::kToPlace) != 0) buffers_.count_received();
      if (on_gpu(next.post) && area_.gpu.needs_flush) {
        next.request = nullptr;
        const ncclResult_t code =
            comm_.network().flush(comm_.get(), next.to.data, static_cast<int>(next.post.bytes),
                                  next.to.registration, &next.request);
        if (code != ncclSuccess) fail(code);
        if (next.request != nullptr) {
          next.state = Arrival::kFlushing;
          flushing_++;
        }
      }
    }
    moved = true;
  }
  return moved && !broken();
}

// Tells the GPU of what is there, in the order of posts.
bool LaneIn::tell() noexcept {
  bool moved = false;
  for (; told_ < received_ && !broken(); told_++) {
    Arrival& next = arrival(told_);
    size_t size = 0;
    if (next.state == Arrival::kFlushing) {
      if (!is_done(next.request, size)) return moved;
      flushing_--;
    }
    publish(next.post);
    moved = true;
  }
  return moved;
}

bool LaneIn::receive_frame() noexcept {
  if (frame_request_ == nullptr || broken() || (in_order_ && received_ < posted_)) return false;
  bool done = false;
  size_t size = 0;
  const ncclResult_t code = comm_.network().test(frame_request_, done, size);
  if (code != ncclSuccess) end_frames(code);
  if (code != ncclSuccess || !done) return false;
  frame_request_ = nullptr;
  frame_at_ = 0;
  frame_bytes_ = size;
  received_bytes_ += size;
  if (size > kLaneFrameBytes) {
    frame_bytes_ = 0;
    fail(ncclInternalError);
    return false;
  }
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

// The GPU polls the word, and then reads the data.
void LaneIn::publish(const WirePost& post) noexcept {
  std::byte* const at = area_.memory.data() + post.word;
  if (kind_of(post) == LanePost::kGrant) {
    // The data is a place.
    write_packet(reinterpret_cast<PostedWords*>(at), static_cast<uint32_t>(post.to),
                 static_cast<uint32_t>(post.to >> 32), post.call, post.value);
  } else {
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), uint64_t{post.call} << 32 | post.value,
                     __ATOMIC_RELEASE);
  }
}

}  // namespace weft
