// See arena.h.
#include "src/transport/arena.h"

namespace weft {

Arena::Arena(const ArenaLayout& layout, bool shareable) : layout_(layout) {
  if (shareable) {
    fd_ = make_memfd("weft-arena", layout.size());
    memory_ = Mapping::shared(fd_.get(), layout.size());
  } else {
    memory_ = Mapping::anonymous(layout.size());
  }
}

Arena::Arena(const ArenaLayout& layout, Fd fd)
    : layout_(layout), fd_(std::move(fd)), memory_(Mapping::shared(fd_.get(), layout.size())) {}

FifoControl& Arena::control(int sender, int channel) const {
  const auto number = static_cast<size_t>(sender * layout_.channels + channel);
  return *reinterpret_cast<FifoControl*>(memory_.data() + kFifosAt +
                                         number * layout_.fifo_stride());
}

std::byte* Arena::ring(int sender, int channel) const {
  return reinterpret_cast<std::byte*>(&control(sender, channel)) + sizeof(FifoControl);
}

SendPort send_port(const Arena& receiver, int sender_index, int channel, int peer_rank) {
  SendPort port;
  port.control = &receiver.control(sender_index, channel);
  port.data = receiver.ring(sender_index, channel);
  port.size = receiver.ring_bytes();
  port.bell.door = &receiver.door();
  port.peer = peer_rank;
  return port;
}

RecvPort receive_port(const Arena& mine, const Arena& sender, int sender_index, int channel,
                      int peer_rank) {
  RecvPort port;
  port.control = &mine.control(sender_index, channel);
  port.data = mine.ring(sender_index, channel);
  port.size = mine.ring_bytes();
  port.bell.door = &sender.door();
  port.peer = peer_rank;
  return port;
}

}  // namespace weft
