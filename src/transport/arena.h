// A rank's arena: its doorbell, and the FIFOs through which the ranks of its host send to it. It is
// plain memory if all these ranks live in this process. Otherwise it is a memfd that the other
// processes map.
#pragma once

#include <memory>

#include "src/base/handles.h"
#include "src/transport/fifo.h"

namespace weft {

// Channels 0 and 1 carry collectives, channel 2 point-to-point messages. Imported schedules may
// need more channels for collectives. Those follow.
inline constexpr int kCollectiveChannels = 2;
inline constexpr int kPointToPointChannel = 2;
inline constexpr int kChannels = 3;
inline int collective_channel(int number) {
  return number < kCollectiveChannels ? number : number + kChannels - kCollectiveChannels;
}

// The first page holds the doorbell, and words with which ranks compare their calls. Then comes a
// board of 1 MiB for data that a rank shows to all ranks of the host. Then come the FIFOs.
// Unused pages cost nothing.
inline constexpr size_t kCallsAt = 1024, kCallWords = 16;
inline constexpr size_t kBoardAt = 4096, kBoardBytes = 1u << 20;
inline constexpr size_t kFifosAt = kBoardAt + kBoardBytes;

struct ArenaLayout {
  int senders = 0;          // ranks of the host, this one included
  uint64_t ring_bytes = 0;  // per FIFO
  int channels = kChannels;
  size_t area_bytes = 0;  // after the FIFOs, for GPUs without access to each other's memory

  size_t fifo_stride() const { return (sizeof(FifoControl) + ring_bytes + 4095) / 4096 * 4096; }
  size_t size() const { return area_at() + area_bytes; }
  size_t area_at() const {
    return kFifosAt + fifo_stride() * static_cast<size_t>(senders) * static_cast<size_t>(channels);
  }
};

// Immutable after construction. Ranks share the memory; the FIFO protocol synchronizes it.
class Arena {
 public:
  // A new arena, zeroed. With `shareable` it can be sent to other processes.
  Arena(const ArenaLayout& layout, bool shareable);
  // Another process's arena, mapped here.
  Arena(const ArenaLayout& layout, Fd fd);

  Doorbell& door() const { return *reinterpret_cast<Doorbell*>(memory_.data()); }
  uint64_t* calls() const { return reinterpret_cast<uint64_t*>(memory_.data() + kCallsAt); }
  std::byte* board() const { return memory_.data() + kBoardAt; }
  std::byte* area() const { return memory_.data() + layout_.area_at(); }
  FifoControl& control(int sender, int channel) const;
  std::byte* ring(int sender, int channel) const;
  uint64_t ring_bytes() const { return layout_.ring_bytes; }
  int fd() const { return fd_.get(); }
  size_t size() const { return memory_.size(); }

 private:
  ArenaLayout layout_;
  Fd fd_;
  Mapping memory_;
};

// The two ends of a FIFO that lies in an arena.
SendPort send_port(const Arena& receiver, int sender_index, int channel, int peer_rank);
RecvPort receive_port(const Arena& mine, const Arena& sender, int sender_index, int channel,
                      int peer_rank);

}  // namespace weft
