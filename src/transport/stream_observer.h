// Who watches streams and proxies: profilers, timelines. As a rule nobody does, which costs a
// comparison per message of the network.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

// One message of a FIFO as part of a message of the network.
struct CarriedMessage {
  uint64_t operation = 0;  // its number, as the header says
  uint64_t bytes = 0;      // of data
};

// Of one stream, whose messages come in order. Called by whichever thread moves the stream, one at
// a time; other streams may be moved meanwhile.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  // Sending: there is something to send. Receiving: the first part of a message is here. May be
  // told several times of the same one.
  virtual void announced() noexcept = 0;
  virtual void sent(std::span<const CarriedMessage> carried) noexcept = 0;  // the network has it
  virtual void landed() noexcept = 0;  // the oldest one that was sent
  virtual void received(std::span<const CarriedMessage> carried) noexcept = 0;
};

// What the thread of a proxy does: it moves bytes, looks in vain, or waits to be woken.
enum class ProxyState : uint8_t { kActive, kIdle, kAsleep };

// Called by the proxy's thread or by who begins to observe it, one at a time.
class ProxyObserver {
 public:
  virtual ~ProxyObserver() = default;
  virtual void turned(ProxyState from, ProxyState to) noexcept = 0;
};

}  // namespace weft
