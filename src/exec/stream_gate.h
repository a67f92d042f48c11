// CUDA assigns a hardware queue to a stream at its first use. Threads that do this at the same time
// may get the same queue. A kernel can then queue behind another rank's kernel that waits for it,
// and both hang. So the ranks of a process launch on new streams one at a
// time.
//
// What is known (H200, driver 580.159.04, 32 hardware queues; perf/queues/first_use.cu shows it
// without this library):
// - Four ranks with three streams each hung in 5 to 7% of fresh processes. With the gate, and
//   the program's own streams used once before, none of 193 hung. With more streams in use than
//   hardware queues 2 of 182 did. Streams of a process that has run for a while never hung.
// - In every hang that was worked out, the missing kernel was the first one on its stream. CUPTI
//   showed the first work of some streams in the channel of another thread's stream.
// - An event that is recorded or waited for is no use: such a stream is still new.
// - Copies and graphs of the program are out of sight here. A program must use each stream once
//   before, while nothing waits, and no more streams than there are hardware queues.
// - A kernel on a spare stream does not free it. Other streams that were busy before, and are gone,
//   do not prevent it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

// One per rank. Used by one thread at a time.
class StreamGate {
 public:
  static constexpr size_t kMostKnown = 64;  // a forgotten stream counts as new again
  // A launch blocks while its queue is full. The queue may stay full until another rank launches a
  // kernel, so waiting for the gate is bounded.
  static constexpr auto kLongestWait = std::chrono::milliseconds(100);

  // Whether this is the first call for the stream. Id 0: the stream is not known, and counts as
  // new.
  bool is_new(uint64_t stream_id);

  // Only one rank of the process holds the pass. It holds it until its launch on new streams is
  // done.
  class Pass {
   public:
    Pass() = default;  // holds nothing
    Pass(Pass&& other) noexcept : taken_(std::exchange(other.taken_, false)) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(taken_, other.taken_);
      return *this;
    }
    ~Pass();
    // Also false if another rank held the pass for longer than kLongestWait.
    bool taken() const { return taken_; }
    static Pass take();

   private:
    bool taken_ = false;
  };

 private:
  std::vector<uint64_t> known_;  // most recent last
};

}  // namespace weft
