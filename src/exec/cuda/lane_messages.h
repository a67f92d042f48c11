// Messages of send/recv as lanes: a lane each, with data of its own. Host code without CUDA.
#pragma once

#include <cstdint>

#include "src/exec/cuda/lane_geometry.h"
#include "src/exec/cuda/lane_image.h"

namespace weft::cuda {

// The most messages of a kernel, in each direction, and the room for their resolved lanes. Bytes.
inline constexpr size_t kMostKernelMessages = 32;
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

// One step: the message is sent, or received.
LaneImage::Lane message_lane(int peer, bool sends);

// The port's position among the words of messages.
void place_message_port(LanePort& port, int consumer, int producer);

}  // namespace weft::cuda
