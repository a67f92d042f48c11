// The sending half of lane_stream.h.
#include <cstring>

#include "src/transport/lane_stream.h"
#include "src/transport/net_abi/extension.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

constexpr size_t kFramesAt = (sizeof(LanePostRing) + 4095) / 4096 * 4096;

size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

LaneOut::LaneOut(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
                 std::atomic<bool>* lost, size_t inline_bytes)
    : NetStream(std::move(comm), proxy,
                Mapping::anonymous(kFramesAt + kMostFlying * kLaneFrameBytes), rank_door, lost),
      area_(area),
      inline_bytes_(inline_bytes),
      frames_registration_(comm_.reg(ring_.data() + kFramesAt, kMostFlying * kLaneFrameBytes)),
      area_registration_(comm_.reg(area_.memory.data(), area_.memory.size())),
      buffers_(area_.gpu.buffers, area_.gpu.pointers) {}

std::byte* LaneOut::frame() const {
  return ring_.data() + kFramesAt + (first_ + flying_) % kMostFlying * kLaneFrameBytes;
}

bool LaneOut::unsent() const {
  LanePost next;
  return !broken() && (flying_ > 0 || prepared_ || take(next));
}

bool LaneOut::progress(bool) noexcept {
  bool moved = false;
  if (broken()) {
    give_up();
    return false;
  }
  buffers_.catch_up(comm_);
  while (!broken()) {
    bool again = false;
    while (flying_ < kMostFlying && send_next()) again = true;
    again = complete_some() || again;
    if (!again) break;
    moved = true;
  }
  return moved;
}

// Nobody will send what is left. The connection is closed, so nobody reads it either: the GPU need
// not wait for it.
void LaneOut::give_up() noexcept {
  comm_ = {};
  for (; flying_ > 0; flying_--) {
    if (bodies_[first_]) count_sent();
    first_ = (first_ + 1) % kMostFlying;
  }
  if (prepared_ && body_.bytes > 0) count_sent();
  prepared_ = false;
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
  body_ = {};
  body_.bytes = post.bytes;
  if ((post.kind & LanePost::kFromPlace) != 0) {
    const NicRegistrations::Memory memory = buffers_.find(post.from, post.bytes);
    body_.data = memory.data;
    body_.registration = memory.registration;
    body_.on_gpu = true;
    if (memory.data != nullptr) buffers_.count_sent();
    return memory.data != nullptr;
  }
  body_.on_gpu = (post.kind & LanePost::kLarge) != 0 && !area_.gpu.memory.empty();
  body_.data = area_.data(post.from, body_.on_gpu);
  body_.registration = body_.on_gpu ? area_.gpu.registration : area_registration_;
  return area_.has(post.from, post.bytes);
}

// Puts as many posts as there are into a frame. One whose data follows is the last. The peer may
// want the data of large messages on its GPU, so these are never in a frame.
bool LaneOut::prepare() noexcept {
  std::byte* const to = frame();
  size_t used = 0;
  body_ = {};
  LanePost post;
  while (body_.bytes == 0 && used + sizeof(WirePost) + inline_bytes_ <= kLaneFrameBytes &&
         take(post)) {
    WirePost wire{post.word, post.call, post.value, post.bytes, post.to, post.kind, post.codec};
    wire.kind &= ~LanePost::kFromPlace;
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
  store(posts().taken, taken_);
  frame_bytes_ = used;
  frame_sent_ = false;
  prepared_ = true;
  return true;
}

bool LaneOut::send_next() noexcept {
  if (!prepared_ && !prepare()) return false;
  Network& network = comm_.network();
  auto& requests = requests_[(first_ + flying_) % kMostFlying];
  ncclResult_t code = ncclSuccess;
  // A message of its own costs a system call more, but a plugin may lend only that.
  const bool two = body_.bytes > 0 && body_.bytes < net_abi::kLeastLoan && !body_.on_gpu;
  if (two && network.can_lend()) {
    requests = {};
    code = network.isend_two(comm_.get(), frame(), frame_bytes_, body_.data, body_.bytes,
                             &requests[0]);
    if (code == ncclSuccess && requests[0] == nullptr) return false;
  } else {
    if (!frame_sent_) {
      requests = {};
      code = network.isend(comm_.get(), frame(), frame_bytes_, frames_registration_, &requests[0]);
      if (code == ncclSuccess && requests[0] == nullptr) return false;
      frame_sent_ = true;
    }
    if (code == ncclSuccess && body_.bytes > 0) {
      code = network.isend(comm_.get(), body_.data, body_.bytes, body_.registration, &requests[1]);
      if (code == ncclSuccess && requests[1] == nullptr) return false;
    }
  }
  if (code != ncclSuccess) {
    fail(code);
    return false;
  }
  bodies_[(first_ + flying_) % kMostFlying] = body_.bytes > 0;
  flying_++;
  prepared_ = false;
  return true;
}

bool LaneOut::complete_some() noexcept {
  bool moved = false;
  while (flying_ > 0 && !broken()) {
    for (void*& request : requests_[first_]) {
      if (request == nullptr) continue;
      bool done = false;
      size_t size = 0;
      const ncclResult_t code = comm_.network().test(request, done, size);
      if (code != ncclSuccess) fail(code);
      if (!done || broken()) return moved;
      request = nullptr;
    }
    if (bodies_[first_]) count_sent();
    first_ = (first_ + 1) % kMostFlying;
    flying_--;
    moved = true;
  }
  return moved;
}

}  // namespace weft
