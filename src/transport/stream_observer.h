// Observers of streams and proxies: profilers, timelines. Usually there are none, which costs a
// comparison per network message.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

// One message of a FIFO as part of a network message.
struct CarriedMessage {
  uint64_t operation = 0;  // its number, from the header
  uint64_t bytes = 0;      // of the data
};

// Observes one stream, whose messages come in order. The thread that moves the stream calls it, one
// at a time. Other streams may move meanwhile.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  // Sending: there is data to send. Receiving: the first part of a message has arrived. May be
  // called several times for the same message.
  virtual void announced() noexcept = 0;
  // The network has accepted the message.
  virtual void sent(std::span<const CarriedMessage> carried) noexcept = 0;
  virtual void landed() noexcept = 0;  // the oldest sent message has arrived
  virtual void received(std::span<const CarriedMessage> carried) noexcept = 0;
};

// The state of a proxy's thread: it moves bytes, polls without news, or waits to be woken.
enum class ProxyState : uint8_t { kActive, kIdle, kAsleep };

// Called by the proxy's thread or by the thread that begins to observe it, one at a time.
class ProxyObserver {
 public:
  virtual ~ProxyObserver() = default;
  virtual void turned(ProxyState from, ProxyState to) noexcept = 0;
};

}  // namespace weft
