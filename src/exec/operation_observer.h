// An observer hears of operations before they run. It can later tell which call the messages of a
// stream belong to.
#pragma once

#include <cstdint>
#include <span>

#include "src/exec/kernel_times.h"

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
  // Whether it wants the times of kernels, which cost two small kernels more.
  virtual bool wants_kernel_times() const = 0;
  // A call's kernels, after their launch.
  virtual void kernels(const void* call, const KernelTimes& times) = 0;
};

}  // namespace weft
