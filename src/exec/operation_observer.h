// An observer hears of operations before they run. It can later tell which call the messages of a
// stream belong to.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

class NetStream;

// The messages of one operation on one stream.
struct StreamTraffic {
  const NetStream* stream = nullptr;
  uint64_t messages = 0;
  uint64_t largest = 0;  // bytes of the largest message
};

// The launching thread calls these.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  // Before the first message. `call` is the caller's name for the operation.
  virtual void begins(const void* call, std::span<const StreamTraffic> traffic) = 0;
  // All operations passed to begins() are launched. An operation that is not launched when its call
  // returns is never launched.
  virtual void launched() = 0;
  // Operations have become part of a graph. From now on nobody knows when each of them runs.
  virtual void captured() = 0;
};

}  // namespace weft
