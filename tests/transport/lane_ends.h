// What lane streams connect, without a GPU: areas of ranks, and a thread that posts as kernels do.
#pragma once

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "src/transport/lane_stream.h"
#include "src/transport/proxy.h"

namespace weft::test {

struct TestArea {
  static constexpr size_t kWords = 4096, kBytes = kWords + (4u << 20);

  std::vector<std::byte> memory = std::vector<std::byte>(kBytes + 64);
  std::vector<std::byte> gpu;  // memory that stands for a GPU's; empty: there is none
  uint64_t sent = 0;

  void give_gpu() { gpu.resize(kBytes - kWords); }
  std::byte* begin() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + ((at + 63) / 64 * 64 - at);
  }
  LaneArea area() {
    LaneArea area{{begin(), kBytes}, kWords, &sent, nullptr, {}};
    area.gpu.memory = gpu;
    return area;
  }
  // Where a post's data is.
  std::byte* data(uint32_t at, bool large) { return area().data(at, large && !gpu.empty()); }
  uint64_t word(size_t number) {
    return __atomic_load_n(reinterpret_cast<uint64_t*>(begin()) + number, __ATOMIC_ACQUIRE);
  }
  bool gets(size_t number, uint64_t value) {
    return comes([&] { return word(number) == value; });
  }
  bool has_sent(uint64_t messages) {
    return comes([&] { return __atomic_load_n(&sent, __ATOMIC_ACQUIRE) == messages; });
  }

 private:
  template <typename Condition>
  static bool comes(const Condition& condition) {
    for (int tries = 0; tries < 20000 && !condition(); tries++)
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    return condition();
  }
};

// Both streams of a connection, and a proxy that moves them.
class LanePair {
 public:
  LanePair(std::pair<NetComm, NetComm> comms, const LaneArea& from, const LaneArea& to)
      : out_(std::make_shared<LaneOut>(std::move(comms.first), proxy_, from, door_, nullptr)),
        in_(std::make_shared<LaneIn>(std::move(comms.second), proxy_, to, door_, nullptr)) {
    proxy_.keep_polling(true);
    proxy_.add(out_);
    proxy_.add(in_);
  }
  ~LanePair() {
    if (out_ != nullptr) proxy_.remove(out_, 1);
    proxy_.remove(in_, 0);
    proxy_.keep_polling(false);
  }
  LanePair(const LanePair&) = delete;
  LanePair& operator=(const LanePair&) = delete;

  LanePostRing& posts() const { return out_->posts(); }
  bool broken() const { return in_->broken(); }
  // Sends what has been posted, and closes the connection.
  void sender_leaves() {
    proxy_.remove(out_, 5);
    out_.reset();
  }

 private:
  Doorbell door_;
  Proxy& proxy_ = Proxy::next();
  std::shared_ptr<LaneOut> out_;
  std::shared_ptr<LaneIn> in_;
};

// Message n of a call, from the same place in both areas.
inline LanePost numbered_post(uint32_t n, uint32_t bytes, uint32_t at) {
  LanePost post;
  post.word = 8 * (n % 16);
  post.call = 3;
  post.value = n;
  post.bytes = bytes;
  post.from = post.to = at;
  return post;
}

// What a kernel does: see lane_posts.cuh.
class Poster {
 public:
  explicit Poster(LanePostRing& ring) : ring_(ring) {}
  void post(const LanePost& post) {
    while (ticket_ - __atomic_load_n(&ring_.taken, __ATOMIC_ACQUIRE) >= kLanePosts)
      std::this_thread::yield();
    uint32_t words[sizeof post / 4];
    std::memcpy(words, &post, sizeof post);
    const auto flag = static_cast<uint32_t>(ticket_ + 1);
    PostedWords* to = ring_.posts[ticket_++ % kLanePosts];
    for (size_t i = 0; i < sizeof post / 8; i++) {
      __atomic_store_n(&to[i].data0, words[2 * i], __ATOMIC_RELAXED);
      __atomic_store_n(&to[i].data1, words[2 * i + 1], __ATOMIC_RELAXED);
      __atomic_store_n(&to[i].flag0, flag, __ATOMIC_RELEASE);
      __atomic_store_n(&to[i].flag1, flag, __ATOMIC_RELEASE);
    }
  }

 private:
  LanePostRing& ring_;
  uint64_t ticket_ = 0;
};

}  // namespace weft::test
