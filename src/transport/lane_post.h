// How a GPU tells its proxy what to send to a rank of another host: posts in a ring of pinned host
// memory. A post says which word of the peer is to get which value, and which data must be in the
// peer's area before. The proxy never reads what the data says, but for the flags of packets. Plain
// structs, the same for host and device.
//
// Thread blocks draw tickets, so several of them write one ring. Each half of a post carries the
// number of its ticket: a post counts when all of its halves do. Tickets only grow.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// A pair of words with flags: what a GPU stores at once.
struct alignas(16) PostedWords {
  uint32_t data0 = 0, flag0 = 0, data1 = 0, flag1 = 0;
};

// One post, as the proxy reads it. Offsets are in bytes, from the begin of a rank's area. Places
// are addresses in buffers that NICs reach (nic_buffers.h).
struct LanePost {
  // What happens to the peer's word when the data is there.
  enum Kind : uint32_t {
    kCount = 0,  // it becomes `call` and `value`: messages produced or consumed
    kGrant = 1,  // a packet: the place in `to`, or none; `call`, signed with `value`
    // None: its data are packets, of `call`, signed with `value`, at `from` and `to`. They may come
    // after the post: what lay at `from` before is taken to have other flags, which are 64 bits.
    // `bytes` are those of their data, 8 each. `to` is among the words.
    kPackets = 2,
  };
  // In `kind` too: the messages of this call are too large for frames (kLaneInlineBytes). A rank
  // whose NICs reach the memory of its GPU keeps such messages there, at both ends.
  static constexpr uint32_t kLarge = 1u << 8;
  // In `kind` too: the data goes to a place that the peer has granted, or comes from one of the
  // sender. Otherwise `to` and `from` are offsets.
  static constexpr uint32_t kToPlace = 1u << 9, kFromPlace = 1u << 10;
  // In `kind` too: this grant may wait for data to the same rank, which comes soon. Then one
  // message of the network carries both.
  static constexpr uint32_t kWaits = 1u << 11;
  uint32_t word = 0;  // offset in the peer's area
  uint32_t call = 0, value = 0;
  uint32_t bytes = 0;  // of data
  uint64_t to = 0, from = 0;
  uint32_t kind = kCount;
  uint32_t codec = 0;  // 0: plain. Also room for a part
};

// The largest data in a frame. Chosen for sockets on one machine; NICs may want another limit.
inline constexpr size_t kLaneInlineBytes = 8u << 10;
inline constexpr uint32_t kLanePosts = 1024;  // of a ring; a power of two

// In pinned memory. The proxy writes `taken`.
struct LanePostRing {
  alignas(64) uint64_t taken = 0;  // posts that may be overwritten
  alignas(64) PostedWords posts[kLanePosts][sizeof(LanePost) / 8];
};

// The rings of a rank: at most so many per peer, one for each stream (lane_streams()). A word's
// stream is known to both ends. Two, so that two proxies can serve a pair.
inline constexpr int kLaneStreams = 2;

}  // namespace weft
