// How a call of a lane program is cut: into parts, chunks, slices and instances of lanes, and how
// large its FIFOs are. A pure function of values that are equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/cuda/lane_image.h"

namespace weft::cuda {

// What the ranks have. Equal on all of them.
struct LaneRoom {
  uint32_t blocks = 1;      // thread blocks per rank
  uint64_t pool_bytes = 0;  // for FIFOs, and for scratch memory unless it has its own
  uint32_t slots = 4;       // messages per FIFO, unless the schedule needs more
  uint64_t fifo_bytes = 0;  // at most
  // Larger FIFOs have more slots, not larger ones, so that data is passed on as soon. 0: no limit.
  uint64_t most_slot_bytes = 0;
  uint64_t least_bytes = 8192;  // of a message, before another instance of a lane pays
  // The same for packets, and the most bytes of a message of them. 0: some ranks cannot use them.
  uint64_t least_packet_bytes = 1024, packet_bytes = 0;
  uint64_t scratch_bytes = 0;  // behind the FIFOs, besides the pool; 0: half of the pool
  // Behind the pool in host memory, twice: for FIFOs of eager calls. 0: no call is eager. Packets
  // are then eager and take as much of their own memory.
  uint64_t eager_bytes = 0;
  // Messages are expensive: long calls have few instances, whose FIFOs have `fifo_bytes` each.
  bool large_messages = false;
};

// LaneRoom::packet_bytes where every rank reaches all of its host or not. On several hosts calls
// may be `eager`. `arrays`: the most bytes of an array in packets; 0: the user wants none.
uint64_t packet_messages(bool hosts_reach, bool several_hosts, bool eager, size_t arrays);

// The instances of each lane, of `weights` in falling order, with which blocks have about the same
// to do (dealt_item()). At least as many as there are blocks for.
uint32_t balanced_instances(const std::vector<uint64_t>& weights, uint32_t blocks);

// The most bytes of lanes that a block has, of `sizes`, with so many instances of each.
size_t most_lane_bytes(const std::vector<LaneSize>& sizes, uint32_t instances, uint32_t blocks);

// The most instances that lane_geometry() takes.
uint32_t most_instances(const LaneImage& image, const LaneRoom& room);

struct LaneGeometry {
  uint64_t part = 0;   // elements of each block that one run moves
  uint64_t chunk = 0;  // elements
  uint64_t slice = 0;  // elements, per instance and iteration
  uint32_t iterations = 1, instances = 1;
  uint32_t slots = 0, slot_bytes = 0;
  uint64_t scratch_at = 0;  // bytes from the begin of the pool
  bool packets = false;     // then slots hold packets
  bool eager = false;       // all messages fit into FIFOs, so they need not wait for room
};

// Throws Error if the pool is too small for the program.
LaneGeometry lane_geometry(const LaneImage& image, const LaneRoom& room, uint64_t count,
                           uint32_t element);

// Whether all chunks of a step lie one after the other, in messages as in buffers, whose blocks are
// `stride` elements apart.
bool chunks_are_whole(const LaneImage& image, const LaneGeometry& geometry, uint64_t count,
                      uint64_t stride, uint32_t element);

// Elements of a chunk in a part of `count` elements. The last part may be shorter, and schedules
// that need chunks of one length need it there too.
uint64_t lane_chunk(const LaneImage& image, const LaneGeometry& geometry, uint64_t count);

}  // namespace weft::cuda
