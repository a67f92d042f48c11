// Posts to the proxy (src/transport/lane_post.h).
#pragma once

#include "src/exec/cuda/kernels/ring_wait.cuh"
#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// Any thread. The caller has fenced the data. `peer`: for whom it waits if the ring is full. The
// proxy empties rings whatever GPUs do, but for packets that come soon, so that is over soon.
__device__ __forceinline__ void put_post(const Watch& watch, Postbox& box, const LanePost& post,
                                         int peer) {
  static_assert(sizeof(LanePost) % sizeof(uint64_t) == 0 && sizeof(PostedWords) == sizeof(Packet));
  LanePostRing* const ring = box.ring;
  uint32_t seen = load_volatile(&box.seen);  // before the ticket, whose value takes as long
  const uint32_t ticket = atomicAdd(&box.ticket, 1);
  Patience patience;
  while (ticket - seen >= kLanePosts) {
    seen = static_cast<uint32_t>(load_acquire_system(&ring->taken));
    if (ticket - seen < kLanePosts) {
      store_volatile(&box.seen, seen);
    } else if (!patience.lasts(watch, peer)) {
      return;
    }
  }
  constexpr uint32_t kHalves = sizeof(LanePost) / sizeof(uint64_t);
  uint32_t words[2 * kHalves];
  memcpy(words, &post, sizeof post);
  auto* to = reinterpret_cast<Packet*>(ring->posts[ticket % kLanePosts]);
#pragma unroll
  for (uint32_t i = 0; i < kHalves; i++)
    store_packet(to + i, words[2 * i], words[2 * i + 1], ticket + 1, ticket + 1);
}
// Not inlined, where it is rare: it would take registers.
__device__ __noinline__ inline void send_post(const Watch& watch, Postbox& box,
                                              const LanePost& post, int peer) {
  put_post(watch, box, post, peer);
}

}  // namespace weft::cuda
