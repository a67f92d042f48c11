// CUDA gives a stream its hardware queue when the stream is first used. Threads that come at once
// may get the same queue. A kernel can then stand behind a kernel of another rank that waits for
// it, and both wait for ever. So ranks of a process pass a gate one by one when they launch on new
// streams.
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

// Of one rank, by one thread at a time.
class StreamGate {
 public:
  static constexpr size_t kMostKnown = 64;  // one that is forgotten is new again
  // A launch blocks where a queue is full, and what empties it may be a kernel of another rank.
  static constexpr auto kLongestWait = std::chrono::milliseconds(100);

  // Whether a stream has not been asked for yet. Id 0: it is not known which one it is.
  bool is_new(uint64_t stream_id);

  // One rank of the process has it at a time, until the launch on streams that are new is done.
  class Pass {
   public:
    Pass() = default;  // none
    Pass(Pass&& other) noexcept : taken_(std::exchange(other.taken_, false)) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(taken_, other.taken_);
      return *this;
    }
    ~Pass();
    // False also where another one's took too long.
    bool taken() const { return taken_; }
    static Pass take();

   private:
    bool taken_ = false;
  };

 private:
  std::vector<uint64_t> known_;  // the latest last
};

}  // namespace weft
