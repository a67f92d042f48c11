// See lane_messages.h.
#include "src/exec/cuda/lane_messages.h"

#include <algorithm>

#include "src/base/error.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kMessageUnit = 256;  // bytes
// A group of eight sends and receives of 256 KiB between two hosts of four processes, over sockets
// on loopback, takes 800 us with slots of 64 KiB and 640 with 256; with 4 MiB 8.5 and 7.2 ms. (On
// one shared H200; no machine with a GPU per rank has been measured.)
constexpr uint8_t kMostWide = 4;
constexpr uint64_t kMostWideBytes = 256 << 10;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t message_slot_bytes(const LaneRoom& room, int nranks) {
  const uint64_t slots = static_cast<uint64_t>(nranks) * kMessageInstances * room.slots;
  const uint64_t bytes =
      std::min(room.fifo_bytes / room.slots, room.pool_bytes / slots) / kMessageUnit * kMessageUnit;
  if (bytes == 0)
    fail(ncclInvalidUsage,
         "FIFOs for messages of {} ranks do not fit into {} bytes (WEFT_SCRATCH_BYTES)", nranks,
         room.pool_bytes);
  return static_cast<uint32_t>(bytes);
}

uint8_t wide_slots(uint32_t slot_bytes) {
  uint8_t wide = kMostWide;
  while (wide > 1 && wide * uint64_t{slot_bytes} > kMostWideBytes) wide /= 2;
  return wide;
}

LaneData message_data(void* pointer, uint64_t bytes, uint64_t place, uint32_t slot_bytes,
                      uint8_t wide) {
  LaneData d;
  d.wide = wide;
  slot_bytes *= wide;
  d.input = static_cast<const std::byte*>(pointer);
  d.output = static_cast<std::byte*>(pointer);
  d.output_place = place;
  d.count = d.stride = d.chunk = bytes;
  d.instances = static_cast<uint32_t>(
      std::clamp<uint64_t>(divide_up(bytes, slot_bytes), 1, uint64_t{kMessageInstances} / wide));
  const uint64_t share = divide_up(bytes, d.instances);
  d.slice = std::min<uint64_t>(slot_bytes, divide_up(share, kMessageUnit) * kMessageUnit);
  d.iterations = static_cast<uint32_t>(divide_up(bytes, d.slice * d.instances));
  return d;
}

uint64_t small_message_bytes(const LaneRoom& room, int nranks) {
  return std::min<uint64_t>(room.packet_bytes,
                            uint64_t{8} * message_packets(static_cast<uint32_t>(nranks)));
}

LaneData small_message_data(void* pointer, uint64_t bytes) {
  LaneData d;
  d.input = static_cast<const std::byte*>(pointer);
  d.output = static_cast<std::byte*>(pointer);
  d.count = d.stride = d.chunk = d.slice = bytes;
  d.instances = d.iterations = 1;
  return d;
}

SmallMessage small_message(const LanePort& port, bool sends, void* pointer, uint64_t bytes,
                           uint32_t* counter, int nranks, const std::byte* area,
                           uint64_t outbox_at) {
  const uint64_t each = message_packets(static_cast<uint32_t>(nranks));
  SmallMessage out;
  out.memory = static_cast<std::byte*>(pointer);
  out.packets = port.packets + port.position * each;
  out.counter = counter;
  out.grant = &port.credits[port.credit_position * kMessageInstances].grant;
  out.bytes = static_cast<uint32_t>(bytes);
  out.peer = static_cast<int16_t>(port.peer);
  out.sends = sends;
  if (port.post == nullptr) return out;
  out.post = sends ? port.small_post : port.post;
  if (!sends) return out;
  out.to = reinterpret_cast<uint64_t>(out.packets) - kRemote;
  out.packets = reinterpret_cast<Packet*>(port.outbox + outbox_at) + port.credit_position * each;
  out.from = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(out.packets) - area);
  return out;
}

uint32_t small_message_half(int nranks) {
  const auto n = static_cast<uint32_t>(nranks);
  return n * message_packets(n);
}

LaneImage::Lane message_lane(int peer, bool sends) {
  LaneOperand memory, fifo;
  memory.kind = sends ? LaneOperand::kInput : LaneOperand::kOutput;
  fifo.kind = LaneOperand::kMessage;
  fifo.straight = LaneOperand::kOutput;
  fifo.far = true;
  fifo.lends = sends;
  fifo.place = sends ? 1 : 0;
  fifo.receives = !sends;
  LaneStep step;
  step.sources = step.destinations = 1;
  step.count = 1;
  step.sends = sends;
  step.skips = !sends;
  step.simple = true;
  LaneImage::Lane lane;
  lane.steps = {step};
  lane.operands = sends ? std::vector{memory, fifo} : std::vector{fifo, memory};
  (sends ? lane.sends : lane.receives).push_back({peer, 0, 0, 1});
  return lane;
}

void place_message_port(LanePort& port, int consumer, int producer) {
  port.position = static_cast<uint32_t>(producer);
  port.credit_position = static_cast<uint32_t>(consumer);
}

}  // namespace weft::cuda
