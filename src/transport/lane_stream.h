// One direction between two ranks of different hosts, for GPUs that run lanes. The sender takes
// posts (lane_post.h) from its GPU and sends them in frames. Small data travels in the frame, large
// data behind it, straight from area to area. The receiver writes data and words into its rank's
// area, where its GPU looks for them. Neither waits for a GPU, but for packets that a kernel is
// writing: a post is made only when the peer has room for its data. So one stream carries any
// number of ports, and none can block another.
//
// Words are in host memory. Large data is in the GPU's memory where its NICs reach that: then no
// CPU touches it. Each end decides for itself. It may also be in a buffer of the caller
// (nic_buffers.h): a sender names its address to the proxy, a receiver grants it to the sender.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/transport/lane_post.h"
#include "src/transport/net_stream.h"
#include "src/transport/nic_buffers.h"

namespace weft {

// Memory of a GPU that its NICs reach. `owner` keeps it.
struct LaneGpuMemory {
  std::span<std::byte> memory;
  int dma_buf = -1;  // descriptor; -1: NICs get the address
  // Kernels may see what a NIC has written only after a flush.
  bool needs_flush = false;
  void* registration = nullptr;  // for the stream that gets this
  std::shared_ptr<const void> owner;
  // The caller's buffers that NICs reach too; nullptr: none. And what kinds of pointers the
  // stream's device takes.
  std::shared_ptr<NicBuffers> buffers;
  int pointers = 0;
};

// A rank's area: words that it polls, then data. Pinned if a GPU uses it. `owner` keeps it.
struct LaneArea {
  std::span<std::byte> memory;
  size_t words_bytes = 0;
  uint64_t* sent = nullptr;  // counts posts whose data the network is done with, for all streams
  std::shared_ptr<const void> owner;
  // Large messages are here, in place of the memory behind the words. Empty: they are not.
  LaneGpuMemory gpu;

  bool has(uint64_t at, uint64_t bytes) const {
    return at >= words_bytes && at <= memory.size() && bytes <= memory.size() - at;
  }
  // Where the data is that a post places at `at`.
  std::byte* data(uint64_t at, bool on_gpu) const {
    return on_gpu ? gpu.memory.data() + (at - words_bytes) : memory.data() + at;
  }
};

// On the wire: a post, and its data if that is small. Large data follows the frame, each as a
// message of its own. Whoever receives a frame can post receives for all of them at once.
struct WirePost {
  static constexpr uint32_t kBodyFollows = 1u << 31;  // in `kind`: the data is such a message
  uint32_t word = 0, call = 0, value = 0, bytes = 0;
  uint64_t to = 0;
  uint32_t kind = 0, codec = 0;
};
static_assert(sizeof(WirePost) == 32);
inline constexpr size_t kLaneFrameBytes = 32u << 10;  // the largest frame
inline constexpr size_t kLaneFrameBodies = 8;         // the most messages behind a frame
// Grants that may wait (LanePost::kWaits) do so no longer. An eager call posts its data about 10 us
// after its grants, or 20 if that comes from another rank of the host. (On an H200.)
inline constexpr std::chrono::microseconds kGrantWaits{30};
// Data in a frame takes so much.
inline size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }
// Of LanePost::kPackets: what a packet carries, and a message of them.
inline constexpr size_t kPacketData = 8, kMostPacketData = kLaneInlineBytes;
// Data that a stream moves before it is another's turn: a proxy moves both directions, and the GPU
// can use what came first. (Tried on loopback only, and not against other numbers.)
inline constexpr size_t kLaneTurnBytes = 64u << 10;

class LaneOut final : public NetStream {
 public:
  // `inline_bytes`: the largest data in a frame.
  LaneOut(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
          std::atomic<bool>* lost, size_t inline_bytes = kLaneInlineBytes,
          std::chrono::microseconds grant_waits = kGrantWaits);
  ~LaneOut() override { comm_ = {}; }  // it deregisters the area, which may be freed after that
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
  bool is_valid(const LanePost& packets) const noexcept;
  bool read_packets(const LanePost& post, std::byte* to = nullptr) const noexcept;
  bool find_body(const LanePost& post) noexcept;
  bool has_waited() const noexcept;
  bool send_next() noexcept;
  bool complete_some() noexcept;
  void give_up() noexcept;
  void count_sent() noexcept { __atomic_fetch_add(area_.sent, 1, __ATOMIC_ACQ_REL); }
  std::byte* frame() const;

  static constexpr size_t kMostFrames = 8, kMostFlying = 16;  // frames, and messages
  const LaneArea area_;
  const size_t inline_bytes_;
  const std::chrono::microseconds grant_waits_;
  void* frames_registration_ = nullptr;
  void* area_registration_ = nullptr;
  uint64_t taken_ = 0;  // posts
  NicRegistrations buffers_;
  // Data that is a network message of its own.
  struct Body {
    std::byte* data = nullptr;
    uint32_t bytes = 0;
    void* registration = nullptr;
    bool on_gpu = false;
  };
  // The frame that is sent next: its size, and the data behind it.
  bool prepared_ = false, frame_sent_ = false;
  size_t sent_bytes_ = 0;  // in this turn
  size_t frame_bytes_ = 0;
  // A frame that may wait for more, or packets that are not there yet; 0: there is none.
  Clock::time_point waits_since_{};
  uint32_t granted_ = 0;  // the call of the last grant that might wait
  std::array<Body, kLaneFrameBodies> bodies_;
  size_t body_ = 0, end_of_bodies_ = 0;  // those that are not sent yet
  // What a request sends: a frame, data, or both.
  struct Flight {
    void* request = nullptr;
    bool frame = false, body = false;
  };
  std::array<Flight, kMostFlying> flights_{};
  size_t first_ = 0, flying_ = 0;
  size_t frames_ = 0, frames_flying_ = 0;  // sent so far, and their number in flight
};

class LaneIn final : public NetStream {
 public:
  LaneIn(NetComm comm, Proxy& proxy, const LaneArea& area, Doorbell& rank_door,
         std::atomic<bool>* lost);
  ~LaneIn() override { comm_ = {}; }  // as ~LaneOut
  bool progress(bool eager) noexcept override;

 protected:
  bool idle() const override { return frame_request_ == nullptr && told_ == read_; }
  bool asks_kernel() const override { return true; }

 private:
  // A post that waits for its data, or for the posts before it.
  struct Arrival {
    enum State : uint8_t { kHere, kAwaited, kReceiving, kFlushing } state = kHere;
    WirePost post;
    NicRegistrations::Memory to;
    void* request = nullptr;
  };
  bool on_gpu(const WirePost& post) const {
    return !area_.gpu.memory.empty() && (post.kind & LanePost::kLarge) != 0;
  }
  // Where a post's data goes. No data: it may not go there.
  NicRegistrations::Memory target(const WirePost& post) const noexcept;
  Arrival& arrival(uint64_t number) { return arrivals_[number % kMostArrivals]; }
  bool read_posts() noexcept;
  bool read_post() noexcept;
  bool write_packets(const WirePost& post, const std::byte* from) noexcept;
  void post_receives() noexcept;
  bool receive_bodies() noexcept;
  bool receive_frame() noexcept;
  void end_frames(ncclResult_t code) noexcept;
  void look_at_end() noexcept;
  bool tell() noexcept;
  bool is_done(void* request, size_t& size) noexcept;
  bool is_valid(const WirePost& post) const noexcept;
  void publish(const WirePost& post) noexcept;

  // Eight receives hide a round trip, and are few enough for any plugin.
  static constexpr size_t kMostArrivals = 64, kMostReceiving = 8, kMostFlushing = 16;
  const LaneArea area_;
  void* frame_registration_ = nullptr;
  void* area_registration_ = nullptr;
  NicRegistrations buffers_;
  const bool in_order_;  // messages come one after the other, as through a socket
  void* frame_request_ = nullptr;
  ncclResult_t no_frames_ = ncclSuccess;  // why no more of them come, in words, and since when
  std::string no_frames_text_;
  Clock::time_point ended_;
  size_t frame_at_ = 0, frame_bytes_ = 0;  // of the last frame: what is read, and all
  // Posts in their order, by number: told <= received <= posted <= read.
  std::array<Arrival, kMostArrivals> arrivals_;
  uint64_t told_ = 0;      // the GPU knows of those before it
  uint64_t received_ = 0;  // have their data, perhaps not flushed yet
  uint64_t posted_ = 0;    // have posted their receives
  uint64_t read_ = 0;      // are known
  size_t receiving_ = 0, flushing_ = 0;
  size_t received_bytes_ = 0;  // in this turn
};

}  // namespace weft
