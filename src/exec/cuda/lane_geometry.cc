// See lane_geometry.h.
#include "src/exec/cuda/lane_geometry.h"

#include <algorithm>

#include "src/base/error.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kMostPacketBytes = 8192;  // of a message of packets
static_assert(kMostPacketBytes <= kLaneInlineBytes);
constexpr uint64_t kSlotUnit = 256;  // bytes: slots begin at multiples
// Smaller messages cost more than blocks that are equally busy gain. Chosen for ranks that share an
// H200, where a step costs some microseconds besides its data; no machine with a GPU per rank has
// been measured. Neither for the gain.
constexpr uint64_t kBalancedBytes = 64 << 10;
// What twice, three times... as many instances as the least must gain, in percent, and the most.
constexpr uint64_t kGain = 3;
constexpr uint32_t kMostMultiple = 4;
// What a warp sums in one go (combine.cuh), and the warps that move data: one less if a block has
// several items. Large slices are multiples for all, so that no warp waits for the others.
constexpr uint64_t kGoBytes = 2 << 10, kWarps = 16;

uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
uint64_t share(uint64_t value, uint64_t parts) { return (value + parts - 1) / parts; }

// The work of the busiest block, if an instance of a lane has the lane's weight.
uint64_t most_load(const std::vector<uint64_t>& weights, uint32_t instances, uint32_t blocks) {
  const auto items = static_cast<uint32_t>(weights.size()) * instances;
  uint64_t most = 0;
  for (uint32_t block = 0; block < blocks; block++) {
    uint64_t load = 0;
    for (uint32_t i = 0; i < dealt_items(items, block, blocks); i++)
      load += weights[dealt_item(i, block, blocks) / instances];
    most = std::max(most, load);
  }
  return most;
}

uint64_t instances_by_blocks(const LaneImage& image, const LaneRoom& room) {
  return std::max<uint64_t>(1, room.blocks / image.most_lanes);
}

// The largest part of a block whose chunks all fit into scratch memory.
uint64_t part_of(const LaneImage& image, uint64_t scratch_bytes, uint64_t count, uint32_t element,
                 uint64_t unit) {
  if (image.scratch_chunks == 0) return count;
  const auto chunks = static_cast<uint64_t>(image.chunks);
  const uint64_t chunk =
      scratch_bytes / static_cast<uint64_t>(image.scratch_chunks) / element / unit * unit;
  if (chunk == 0)
    fail(ncclInvalidUsage,
         "{} chunks of scratch memory do not fit into {} bytes "
         "(WEFT_SCRATCH_BYTES)",
         image.scratch_chunks, scratch_bytes);
  return std::min(count, chunk * chunks);
}

// Packets, if the messages are small: one iteration, and a slot for every message. The pool holds
// no FIFOs then, so scratch memory begins there.
bool take_packets(const LaneImage& image, const LaneRoom& room, uint64_t by_blocks, uint64_t unit,
                  uint32_t element, LaneGeometry& g) {
  if (room.packet_bytes == 0 || image.most_messages == 0 || !image.codecs.empty()) return false;
  const auto chunks = static_cast<uint64_t>(image.step_chunks);
  // With one instance, steps of several chunks are one round: chunks_are_whole(). (Measured between
  // ranks that share an H200, over loopback only.)
  const bool eager = room.eager_bytes > 0,
             alone = eager && chunks > 1 && g.chunk * element * chunks <= room.packet_bytes &&
                     g.chunk * static_cast<uint64_t>(image.chunks) == g.part &&
                     g.chunk * element % 8 == 0;
  const uint64_t instances =
      alone ? 1
            : std::clamp<uint64_t>(share(g.chunk * element * chunks, room.least_packet_bytes), 1,
                                   by_blocks);
  const uint64_t slice = up(share(std::max<uint64_t>(1, g.chunk), instances), unit);
  const uint64_t packets = up(std::max<uint64_t>(1, share(slice * element, 8)) * chunks, 16);
  const uint64_t ports = std::max<uint64_t>(1, image.most_ports) * instances;
  const uint64_t most =
      eager ? std::min<uint64_t>(kEagerPackets, room.eager_bytes / sizeof(Packet)) : kLanePackets;
  if (share(slice * element, 8) * 8 * chunks > room.packet_bytes || ports > kMostLanePorts ||
      ports * image.most_messages * packets > most)
    return false;
  g.packets = true;
  g.eager = eager;
  g.instances = static_cast<uint32_t>(instances);
  g.slice = slice;
  g.iterations = 1;
  g.slots = image.most_messages;
  g.slot_bytes = static_cast<uint32_t>(packets * sizeof(Packet));
  return true;
}

// Where messages are expensive: few instances, whose messages are large, but more than one, which
// would leave the network idle while it waits. (To encode, all thread blocks are needed. Chosen
// over loopback between ranks that share an H200; no machine with a GPU per rank has been
// measured.)
constexpr uint64_t kFewInstances = 2;
bool has_few_instances(const LaneImage& image, const LaneRoom& room) {
  return room.large_messages && room.fifo_bytes > 0 && image.codecs.empty();
}

// The most bytes of a block of codecs in a message. Without codecs: of an element.
uint64_t block_bytes(const LaneImage& image, uint64_t block, uint32_t element) {
  uint64_t most = image.all_coded ? 0 : block * element;
  for (const CodecSpec& spec : image.codecs)
    most = std::max(most, encoded_bytes(spec, block, element));
  return most;
}

// The elements whose multiples are slices. `most`: of a slice; `all`: of all slices of an instance,
// 0 if all instances must have as many. Codes follow the scales of their blocks, of four bytes
// each. So whole vectors of scales leave the codes aligned, if there is room.
uint64_t slice_unit(const LaneImage& image, uint64_t block, uint64_t unit, uint64_t most,
                    uint64_t all, uint32_t element, bool several) {
  const uint64_t aligned = 4 * block, go = (kWarps - (several ? 1 : 0)) * kGoBytes / element;
  if (!image.codecs.empty()) return std::max(unit, most < aligned ? block : aligned);
  return image.uniform_only || std::min(most, all) < 2 * go ? unit : go;
}

// A slot for every message, if there is room for that.
void make_eager(const LaneImage& image, const LaneRoom& room, uint64_t ports, LaneGeometry& g) {
  const uint64_t messages = uint64_t{g.iterations} * image.most_messages, all = ports * g.instances;
  if (messages == 0 || messages > kMostEagerMessages || all > kMostEagerPorts ||
      all * messages * g.slot_bytes > room.eager_bytes)
    return;
  g.eager = true;
  g.slots = static_cast<uint32_t>(messages);
}

}  // namespace

uint64_t packet_messages(bool hosts_reach, bool several_hosts, bool eager, size_t arrays) {
  return hosts_reach && (!several_hosts || eager) && arrays > 0 ? kMostPacketBytes : 0;
}

uint32_t balanced_instances(const std::vector<uint64_t>& weights, uint32_t blocks) {
  if (weights.empty()) return 0;
  const uint32_t least = std::max<uint32_t>(1, blocks / static_cast<uint32_t>(weights.size()));
  uint32_t best = least;
  uint64_t lowest = 0;  // times `best`; whole numbers, because all ranks must agree
  for (uint32_t instances = least; instances <= kMostMultiple * least; instances++) {
    const uint64_t cost = most_load(weights, instances, blocks) *
                          (100 * uint64_t{least} + kGain * (instances - least));
    if (instances > least && cost * best >= lowest * instances) continue;
    best = instances;
    lowest = cost;
  }
  return best;
}

uint32_t most_instances(const LaneImage& image, const LaneRoom& room) {
  const uint64_t ports = std::max<uint64_t>(1, image.most_ports);
  const uint64_t by_messages =
      room.pool_bytes / (ports * std::max<uint64_t>(1, room.slots)) / kBalancedBytes;
  return static_cast<uint32_t>(
      std::max(instances_by_blocks(image, room), std::min<uint64_t>(image.instances, by_messages)));
}

size_t most_lane_bytes(const std::vector<LaneSize>& sizes, uint32_t instances, uint32_t blocks) {
  std::vector<uint64_t> bytes;
  for (const LaneSize& size : sizes) bytes.push_back(uint64_t{size.lane} + size.resolved);
  return most_load(bytes, instances, blocks);
}

LaneGeometry lane_geometry(const LaneImage& image, const LaneRoom& room, uint64_t count,
                           uint32_t element) {
  LaneGeometry g;
  const auto chunks = static_cast<uint64_t>(image.chunks),
             step_chunks = static_cast<uint64_t>(image.step_chunks);
  // Slices end where blocks of codecs do.
  const uint64_t block = image.codecs.empty() ? 1 : image.codecs.front().block;
  const uint64_t unit = image.uniform_only ? 1 : std::max<uint64_t>({1, 64 / element, block});
  const uint64_t bytes = block_bytes(image, block, element);
  const bool own_scratch = room.scratch_bytes > 0;
  const uint64_t scratch_bytes = image.scratch_chunks == 0 ? 0
                                 : own_scratch             ? room.scratch_bytes
                                                           : room.pool_bytes / 2;
  g.part = part_of(image, scratch_bytes, count, element, unit);
  g.chunk = up(share(g.part, chunks), unit);
  // As many instances as there are blocks for, while messages are large enough.
  const uint64_t ports = std::max<uint64_t>(1, image.most_ports);
  const uint64_t by_blocks = instances_by_blocks(image, room);
  if (ports > kMostLanePorts)
    fail(ncclInvalidUsage, "a rank has {} ports; kernels do {}", ports, kMostLanePorts);
  if (g.part == count && take_packets(image, room, by_blocks, unit, element, g)) return g;
  const bool few = has_few_instances(image, room);
  const bool fills_fifos = few && g.chunk * element * step_chunks >=
                                      kFewInstances * std::min(room.fifo_bytes, room.pool_bytes);
  // Smaller FIFOs cut short calls into more slices. Messages of several chunks have small slices.
  const bool whole_pool = scratch_bytes == 0 || (own_scratch && (fills_fifos || step_chunks > 1));
  const uint64_t fifos = room.pool_bytes - 4096 - (whole_pool ? 0 : room.pool_bytes / 2);
  const uint64_t by_bytes = share(std::max<uint64_t>(1, g.chunk * element), room.least_bytes);
  const uint64_t by_ports = std::max<uint64_t>(1, kMostLanePorts / ports);
  g.slots = std::max(room.slots, static_cast<uint32_t>(image.fifo_depth));
  const uint64_t least_slot = up(step_chunks * std::max<uint64_t>(64, bytes), kSlotUnit);
  const uint64_t by_pool = std::max<uint64_t>(1, fifos / (ports * g.slots * least_slot));
  // More of them if that makes blocks equally busy, and messages stay large.
  const uint64_t by_messages =
      std::min(g.chunk * element * step_chunks, fifos / (ports * g.slots)) / kBalancedBytes;
  const uint64_t balanced = std::max(by_blocks, std::min<uint64_t>(image.instances, by_messages));
  g.instances = static_cast<uint32_t>(std::min({balanced, by_bytes, by_ports, by_pool}));
  if (few) g.instances = std::min(g.instances, static_cast<uint32_t>(kFewInstances));
  const uint64_t wanted = std::max(room.fifo_bytes, g.slots * least_slot);
  const uint64_t fifo = std::min(wanted, fifos / (ports * g.instances));
  if (room.most_slot_bytes > 0)
    g.slots =
        std::max(g.slots, static_cast<uint32_t>(fifo / std::max(least_slot, room.most_slot_bytes)));
  const uint64_t slot = fifo / g.slots / kSlotUnit * kSlotUnit;
  if (slot < least_slot)
    fail(ncclInvalidUsage,
         "FIFOs for {} ports with {} messages of {} chunks each do not fit into {} bytes "
         "(WEFT_SCRATCH_BYTES)",
         image.most_ports, g.slots, image.step_chunks, fifos);
  // All slices have the same length, if they can.
  const uint64_t room_for = slot / step_chunks / bytes * block;
  // An instance with a slice more than others has them wait, unless its block has others' too.
  const bool several = uint64_t{image.most_lanes} * g.instances > room.blocks,
             mixed = g.instances == 1 || several;
  const uint64_t step =
      slice_unit(image, block, unit, room_for, mixed ? g.chunk / g.instances : 0, element, several);
  const uint64_t most_slice = std::max(block, room_for / step * step);
  const uint64_t iterations = std::max<uint64_t>(1, share(g.chunk, most_slice * g.instances));
  g.slice = std::min(most_slice,
                     up(share(std::max<uint64_t>(1, g.chunk), iterations * g.instances), step));
  g.iterations =
      static_cast<uint32_t>(std::max<uint64_t>(1, share(g.chunk, g.slice * g.instances)));
  g.slot_bytes = static_cast<uint32_t>(up(share(g.slice, block) * step_chunks * bytes, kSlotUnit));
  make_eager(image, room, ports, g);
  g.scratch_at = up(ports * g.instances * g.slots * g.slot_bytes, 4096);
  return g;
}

bool chunks_are_whole(const LaneImage& image, const LaneGeometry& geometry, uint64_t count,
                      uint64_t stride, uint32_t element) {
  const uint64_t chunk = lane_chunk(image, geometry, count);
  return image.codecs.empty() && geometry.instances == 1 && geometry.iterations == 1 &&
         geometry.slice >= chunk && stride == count && geometry.part == count &&
         chunk * static_cast<uint64_t>(image.chunks) == count &&
         (!geometry.packets || chunk * element % 8 == 0);
}

uint64_t lane_chunk(const LaneImage& image, const LaneGeometry& geometry, uint64_t count) {
  return image.uniform_only ? share(count, static_cast<uint64_t>(image.chunks)) : geometry.chunk;
}

}  // namespace weft::cuda
