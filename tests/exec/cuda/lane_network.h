// The network between emulated hosts of the lane kernel: messages between ranks in one process.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "src/exec/cuda/lane_program.h"
#include "src/transport/lane_stream.h"
#include "src/transport/proxy.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {

using namespace cuda;  // NOLINT(google-build-using-namespace): it tests most of it

// Streams between ranks of different hosts, and the threads that move them.
class LaneNetwork {
 public:
  static constexpr size_t kInlineBytes = 200;  // larger data follows its frame

  // `areas`: of each rank. `late`: data is sent some time after it was posted.
  LaneNetwork(const std::vector<LaneArea>& areas, const std::function<bool(int, int)>& apart,
              bool late)
      : areas_(areas) {
    const int n = static_cast<int>(areas.size());
    const std::shared_ptr<Network> network = loopback_network();
    boxes_.resize(static_cast<size_t>(n * n * kLaneStreams));
    for (int from = 0; from < n; from++)
      for (int to = 0; to < n; to++)
        for (int s = 0; s < kLaneStreams && apart(from, to); s++) {
          auto [out, in] = connect_pair(network);
          outs_.push_back(std::make_shared<LaneOut>(std::move(out), proxy_,
                                                    areas[static_cast<size_t>(from)], door_,
                                                    nullptr, kInlineBytes));
          ins_.push_back(std::make_shared<LaneIn>(std::move(in), proxy_,
                                                  areas[static_cast<size_t>(to)], door_, nullptr));
          Postbox& box = boxes_[static_cast<size_t>((from * n + to) * kLaneStreams + s)];
          box.ring = &outs_.back()->posts();
          box.area = areas[static_cast<size_t>(from)].memory.data();
        }
    n_ = n;
    pump_ = std::jthread([this, late](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        bool moved = false;
        if (late) std::this_thread::sleep_for(std::chrono::microseconds(300));
        for (const auto& out : outs_) moved = out->progress(true) || moved;
        for (const auto& in : ins_) moved = in->progress(true) || moved;
        if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  Postbox& box(int from, int to, uint32_t position) {
    return boxes_[static_cast<size_t>((from * n_ + to) * kLaneStreams) + position % kLaneStreams];
  }
  // A port between ranks of different hosts. Areas are words, pool and outbox.
  void connect(LanePort& port, int me, std::byte* area, bool receives, size_t pool_at,
               size_t outbox_at) {
    port.post = &box(me, port.peer, port.position);
    port.small_post = &box(me, port.peer, 0);
    if (receives) {
      port.credits = reinterpret_cast<Credit*>(kRemote + offset(port.credits, port.peer));
      port.grant = reinterpret_cast<Packet*>(kRemote + offset(port.grant, port.peer));
    } else {
      port.pool = reinterpret_cast<std::byte*>(kRemote + pool_at);
      port.tails = reinterpret_cast<Tail*>(kRemote + offset(port.tails, port.peer));
      port.packets = reinterpret_cast<Packet*>(kRemote + offset(port.packets, port.peer));
      port.outbox = area + outbox_at;
    }
    port.reachable = false;
  }

 private:
  uint64_t offset(const void* at, int rank) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(at) -
                                 areas_[static_cast<size_t>(rank)].memory.data());
  }
  int n_ = 0;
  Proxy& proxy_ = Proxy::next();  // has nothing to do: the pump moves the streams
  Doorbell door_;
  std::vector<LaneArea> areas_;
  std::vector<Postbox> boxes_;
  std::vector<std::shared_ptr<LaneOut>> outs_;
  std::vector<std::shared_ptr<LaneIn>> ins_;
  std::jthread pump_;
};

}  // namespace weft::test
