// Who is told of operations before they run, to know later whose messages streams move.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

class NetStream;

// What an operation moves through one stream.
struct StreamTraffic {
  const NetStream* stream = nullptr;
  uint64_t messages = 0;
  uint64_t largest = 0;  // of them, in bytes
};

// Called by the thread that launches.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  // Before the first message. `call` is the caller's name for it.
  virtual void begins(const void* call, std::span<const StreamTraffic> traffic) = 0;
  // All of which begins() has logged; what is not launched when its call returns never is.
  virtual void launched() = 0;
  // Operations have become part of a graph: from now on nobody knows when which of them run.
  virtual void captured() = 0;
};

}  // namespace weft
