// The ends of a FIFO (fifo.h) for a plain thread that is no lane. Messages carry their data.
#pragma once

#include "src/transport/doorbell.h"
#include "src/transport/fifo.h"

namespace weft {

// Room for a message of `bytes` bytes of data: where its header goes, and the data behind it.
// nullptr: there is none yet.
inline MessageHeader* reserve_message(SendPort& port, uint64_t bytes) {
  const uint64_t whole = kFifoAlign + fifo_round(bytes);
  const uint64_t left = port.size - port.at, skip = left < whole ? left : 0;
  if (port.size - (port.tail - port.head_seen) < skip + whole) {
    port.head_seen = __atomic_load_n(&port.control->head, __ATOMIC_SEQ_CST);
    if (port.size - (port.tail - port.head_seen) < skip + whole) return nullptr;
  }
  if (skip > 0) {
    auto* skipped = reinterpret_cast<MessageHeader*>(port.data + port.at);
    *skipped = {};
    skipped->kind = MessageHeader::kSkip;
    skipped->bytes = skip;
    port.tail += skip;
    port.at = 0;
  }
  return reinterpret_cast<MessageHeader*>(port.data + port.at);
}

// Sends the message whose header and data are in place.
inline void post_message(SendPort& port, uint64_t bytes) {
  const uint64_t whole = kFifoAlign + fifo_round(bytes);
  port.tail += whole;
  port.at = further(port.at, whole, port.size);
  __atomic_store_n(&port.control->tail, port.tail, __ATOMIC_SEQ_CST);
  ring(port.bell);
}

// The next message, with its data behind it; nullptr: none has arrived.
inline const MessageHeader* next_message(RecvPort& port) {
  const auto there = [&](uint64_t bytes) {
    const auto enough = [&] {
      return static_cast<int64_t>(port.tail_seen - port.head) >= static_cast<int64_t>(bytes);
    };
    if (enough()) return true;
    port.tail_seen = __atomic_load_n(&port.control->tail, __ATOMIC_SEQ_CST);
    return enough();
  };
  while (there(kFifoAlign)) {
    const auto* header = reinterpret_cast<const MessageHeader*>(port.data + port.at);
    if (header->kind != MessageHeader::kSkip) {
      port.taken = kFifoAlign + fifo_round(header->bytes);
      return there(port.taken) ? header : nullptr;
    }
    port.head += header->bytes;
    port.at = further(port.at, header->bytes, port.size);
  }
  return nullptr;
}

// Gives the room of the last message back.
inline void consume_message(RecvPort& port) {
  port.head += port.taken;
  port.at = further(port.at, port.taken, port.size);
  __atomic_store_n(&port.control->head, port.head, __ATOMIC_SEQ_CST);
  ring(port.bell);
}

}  // namespace weft
