// One direction between two ranks of different hosts, for GPUs that run lanes. The sender takes
// posts (lane_post.h) from its GPU and sends them in frames. Small data travels in the frame, large
// data behind it, straight from area to area. The receiver writes data and words into its rank's
// area, where its GPU looks for them. Neither waits for a GPU: a post is made only when the peer
// has room for its data. So one stream carries any number of ports, and none can block another.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "src/transport/lane_post.h"
#include "src/transport/net_stream.h"

namespace weft {

// A rank's area: words that it polls, then data. Pinned if a GPU uses it. `owner` keeps it.
struct LaneArea {
  std::span<std::byte> memory;
  size_t words_bytes = 0;
  uint64_t* sent = nullptr;  // counts posts whose data the network is done with, for all streams
  std::shared_ptr<const void> owner;
};

// On the wire: a post, and its data if that is small.
struct WirePost {
  static constexpr uint32_t kBodyFollows = 1u << 31;  // in `kind`: the data is the next message
  uint32_t word = 0, call = 0, value = 0, bytes = 0, to = 0, kind = 0, codec = 0, unused = 0;
};
inline constexpr size_t kLaneFrameBytes = 32u << 10;  // the largest frame
inline constexpr size_t kLaneInlineBytes = 8u << 10;

class LaneOut final : public NetStream {
 public:
  // `inline_bytes`: the largest data in a frame.
  LaneOut(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
          std::atomic<bool>* lost, size_t inline_bytes = kLaneInlineBytes);
  // Where the GPU writes its posts. In memory().
  LanePostRing& posts() const { return *reinterpret_cast<LanePostRing*>(ring_.data()); }
  bool progress(bool eager) noexcept override;
  bool unsent() const override;

 protected:
  bool idle() const override { return flying_ == 0 && !prepared_; }
  bool asks_kernel() const override { return flying_ > 0; }

 private:
  bool take(LanePost& post) const noexcept;
  bool prepare() noexcept;
  bool send_next() noexcept;
  bool complete_some() noexcept;
  void count_sent() noexcept { __atomic_fetch_add(area_.sent, 1, __ATOMIC_ACQ_REL); }
  std::byte* frame() const;

  static constexpr size_t kMostFlying = 8;
  const LaneArea area_;
  const size_t inline_bytes_;
  void* frames_registration_ = nullptr;
  void* area_registration_ = nullptr;
  uint64_t taken_ = 0;  // posts
  // The frame that is sent next: its size, and the data behind it.
  bool prepared_ = false, frame_sent_ = false;
  size_t frame_bytes_ = 0;
  uint32_t body_at_ = 0, body_bytes_ = 0;
  // Two requests per frame, at most, and whether data goes with it.
  std::array<std::array<void*, 2>, kMostFlying> requests_{};
  std::array<bool, kMostFlying> bodies_{};
  size_t first_ = 0, flying_ = 0;
};

class LaneIn final : public NetStream {
 public:
  LaneIn(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
         std::atomic<bool>* lost);
  bool progress(bool eager) noexcept override;

 protected:
  bool idle() const override { return flying_ == 0; }
  bool asks_kernel() const override { return true; }

 private:
  bool receive_next() noexcept;
  bool read_frame(size_t size) noexcept;
  bool is_valid(const WirePost& post) const noexcept;
  void publish(const WirePost& post) noexcept;

  const LaneArea area_;
  void* frame_registration_ = nullptr;
  void* area_registration_ = nullptr;
  // The receives that are posted: the data behind a frame, and the frame after it.
  struct Receive {
    void* request = nullptr;
    bool body = false;
    WirePost post;  // that the data belongs to
  };
  std::array<Receive, 2> receives_;
  size_t flying_ = 0;
  bool owes_body_ = false;  // the next receive is the data of `owed_`
  WirePost owed_;
};

}  // namespace weft
