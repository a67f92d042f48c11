// Messages of send/recv so small that they are packets, see lane_program.h, in a kernel that has no
// others. It knows where everything is, so that it asks for all it waits for at once: on an H200
// lanes took 11 us from the begin of a kernel to the post of its message. Plain structs, the same
// for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// One of them, as this rank sees it. Packets have two halves, by the number of the message: what is
// said here is for even numbers.
struct alignas(16) SmallMessage {
  std::byte* memory = nullptr;  // the caller's
  // A producer writes them, a consumer waits for them.
  Packet* packets = nullptr;
  uint32_t* counter = nullptr;  // messages to or from this peer that have completed
  // Of a producer: its own. Of a consumer: the peer's, where it tells that it has come so far.
  Packet* grant = nullptr;
  // A peer on another host gets packets, or the grant, by post; nullptr: it is on this host.
  Postbox* post = nullptr;
  uint64_t from = 0, to = 0;  // of packets that are posted: as in LanePost
  uint32_t bytes = 0;         // one at least
  int16_t peer = 0;
  bool sends = false;

  WEFT_HD uint32_t words() const { return (bytes + 7) / 8; }
};
static_assert(sizeof(SmallMessage) == 64);

// The messages follow.
struct alignas(16) SmallMessageArguments {
  Watch watch;
  LaneCounters* counters = nullptr;  // nullptr: only launched to be loaded
  uint32_t count = 0;
  uint32_t team = 0;  // threads of a message; each block has as many teams as fit
  uint32_t half = 0;  // packets from a message's place to that of odd numbers

  WEFT_HD const SmallMessage* messages() const {
    return reinterpret_cast<const SmallMessage*>(this + 1);
  }
};
// The most messages of a kernel in each direction, and few messages in all: larger parameters make
// launches slower.
inline constexpr size_t kMostKernelMessages = 32, kFewSmallMessages = 8;
constexpr size_t small_message_parameters(size_t count) {
  return sizeof(SmallMessageArguments) + count * sizeof(SmallMessage);
}

// Threads of a message and of a block, and blocks. No blocks: there are not enough.
struct SmallMessageGrid {
  uint32_t team = 0, threads = 0, blocks = 0;
};
// `words`: of the largest message. Every message has a team of warps, because none may wait for
// another.
inline SmallMessageGrid small_message_grid(uint32_t count, uint32_t words, uint32_t most_threads,
                                           uint32_t most_blocks, uint32_t warp = 32) {
  const uint32_t warps = most_threads / warp;
  for (uint32_t team = (words + warp - 1) / warp < warps ? (words + warp - 1) / warp : warps;
       team > 0; team /= 2) {
    const uint32_t teams = warps / team, blocks = (count + teams - 1) / teams;
    if (blocks > most_blocks) continue;
    return {team * warp, (count < teams ? count : teams) * team * warp, blocks};
  }
  return {};
}

}  // namespace weft::cuda
