// Messages of send/recv as lanes: a lane each, with data of its own. Host code without CUDA.
#pragma once

#include <cstdint>

#include "src/exec/cuda/lane_geometry.h"
#include "src/exec/cuda/lane_image.h"
#include "src/exec/cuda/small_message.h"

namespace weft::cuda {

// The room for the resolved lanes of a kernel's messages, in bytes.
inline constexpr size_t kMessageResolvedBytes =
    2 * kMostKernelMessages * kMessageInstances *
    (2 * (sizeof(LaneEnd) + sizeof(std::byte*)) + sizeof(LaneLength) + 16);

// Bytes of a slot. FIFOs are numbered by producer and instance. Throws Error if they do not fit.
uint32_t message_slot_bytes(const LaneRoom& room, int nranks);

// For messages that CPUs carry to other hosts. There messages cost more than bytes, and the network
// is slower than several thread blocks: so many slots are one, and instances are fewer.
uint8_t wide_slots(uint32_t slot_bytes);

// Both ends cut a message alike. `place`: where a receiver's buffer is for its peers.
LaneData message_data(void* pointer, uint64_t bytes, uint64_t place, uint32_t slot_bytes,
                      uint8_t wide);

// The most bytes of messages that are packets. 0: none are. Each end decides by the size alone.
uint64_t small_message_bytes(const LaneRoom& room, int nranks);
LaneData small_message_data(void* pointer, uint64_t bytes);
// The same in a kernel that has no others. `port`: of message_lane()'s only message. `area`: this
// rank's, if the peer is on another host; its outbox for these messages is at `outbox_at`.
SmallMessage small_message(const LanePort& port, bool sends, void* pointer, uint64_t bytes,
                           uint32_t* counter, int nranks, const std::byte* area,
                           uint64_t outbox_at);
uint32_t small_message_half(int nranks);

// One step: the message is sent, or received.
LaneImage::Lane message_lane(int peer, bool sends);

// The port's position among the words of messages.
void place_message_port(LanePort& port, int consumer, int producer);

}  // namespace weft::cuda
