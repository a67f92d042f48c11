// See send_recv_arguments.h.
#include "src/exec/cuda/send_recv_arguments.h"

#include <algorithm>
#include <array>
#include <span>

#include "src/base/error.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kSendRecvCtaBytes = 256;  // small, because there may be many messages
constexpr uint64_t kPacketSendRecv = 32 << 10;

using Message = SendRecvArguments::Message;

uint64_t ceiling(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

std::span<const Message> sends_of(const SendRecvArguments& a) { return {a.sends, a.send_count}; }
std::span<const Message> receives_of(const SendRecvArguments& a) {
  return {a.receives, a.receive_count};
}

// Of the peers that have most: messages, large messages, and slots of data on their port, for the
// block that has most.
struct Most {
  uint32_t messages = 0, large = 0, slots = 0;
};
Most most_of(std::span<const Message> messages) {
  std::array<Most, kMaxRanks> peers;
  Most most;
  for (const Message& m : messages) {
    Most& peer = peers[static_cast<size_t>(m.peer)];
    most.messages = std::max(most.messages, ++peer.messages);
    if (!m.packets) most.large = std::max(most.large, ++peer.large);
    if (m.packets) peer.slots += static_cast<uint32_t>(ceiling(m.part, kSlotBytes));
    most.slots = std::max(most.slots, peer.slots);
  }
  return most;
}

}  // namespace

bool goes_in_packets(uint64_t bytes) { return bytes <= kPacketSendRecv; }

std::vector<std::vector<GpuMessage>> into_kernels(std::span<const GpuMessage> messages, int nranks,
                                                  uint64_t stage) {
  struct Filled {
    size_t kernel = 0;
    uint32_t messages = 0;
    uint64_t large = 0;  // bytes of large messages
  };
  std::vector<Filled> peers(static_cast<size_t>(nranks));
  std::vector<std::vector<GpuMessage>> kernels;
  const auto place = [&](const GpuMessage& m) {
    Filled& peer = peers[static_cast<size_t>(m.peer)];
    const bool packets = goes_in_packets(m.bytes);
    // A kernel handles packets first.
    const bool full = peer.messages == message_slots(nranks) ||
                      (packets ? peer.large > 0 : peer.large + m.bytes > stage);
    if (peer.messages > 0 && full) peer = {peer.kernel + 1, 0, 0};
    peer.messages++;
    if (!packets) peer.large += m.bytes;
    if (kernels.size() <= peer.kernel) kernels.resize(peer.kernel + 1);
    kernels[peer.kernel].push_back(m);
  };
  for (const GpuMessage& m : messages)
    for (uint64_t at = 0; at < m.bytes; at += stage) {
      place({static_cast<std::byte*>(m.pointer) + at, std::min(stage, m.bytes - at), m.peer});
      if (m.bytes - at <= stage) break;
    }
  return kernels;
}

void add_message(SendRecvArguments& a, const SendRecvBlocks& blocks, void* pointer, uint64_t bytes,
                 int peer, uint64_t place, bool sends) {
  uint32_t& count = sends ? a.send_count : a.receive_count;
  if (count == kMaxRanks)
    fail(ncclInternalError, "a kernel takes {} messages in each direction", kMaxRanks);
  Message& m = (sends ? a.sends : a.receives)[count++];
  m.pointer = static_cast<std::byte*>(pointer);
  m.place = place;
  m.bytes = bytes;
  m.peer = static_cast<int16_t>(peer);
  m.packets = goes_in_packets(bytes);
  m.slots = sends ? first_slot(a.comm, peer, a.comm.port(a.comm.rank, kSendRecvChannel))
                  : first_slot(a.comm, a.comm.rank, a.comm.port(peer, kSendRecvChannel));
  // The number of blocks depends only on the size, so both sides choose the same.
  const auto most = static_cast<uint64_t>(m.packets ? blocks.packet_ctas : blocks.max_ctas);
  const uint64_t ctas = std::clamp<uint64_t>(
      ceiling(bytes, m.packets ? kSendRecvCtaBytes : blocks.cta_bytes), 1, most);
  m.ctas = static_cast<uint8_t>(ctas);
  m.part = m.packets ? static_cast<uint32_t>(ceiling(ceiling(bytes, ctas), 16) * 16) : 0;
}

uint32_t finish(SendRecvArguments& a) {
  const Most out = most_of(sends_of(a)), in = most_of(receives_of(a));
  a.several = out.messages > 1 || in.messages > 1;
  a.turns = static_cast<uint8_t>(in.large);
  a.packet_width = a.several ? kPacketSlots : 1;
  a.packet_steps = static_cast<uint32_t>(ceiling(std::max(out.slots, in.slots), a.packet_width));
  a.packet_words = 0;
  uint32_t ctas = 1;
  for (const auto messages : {sends_of(a), receives_of(a)})
    for (const Message& m : messages) {
      a.packet_words = std::max(a.packet_words, std::min<uint32_t>(m.part / 8, kSlotPackets));
      ctas = std::max<uint32_t>(ctas, m.ctas);
    }
  return ctas;
}

bool all_in_packets(const SendRecvArguments& a) {
  const auto in_packets = [](const Message& m) { return m.packets; };
  return std::ranges::all_of(sends_of(a), in_packets) &&
         std::ranges::all_of(receives_of(a), in_packets);
}

}  // namespace weft::cuda
