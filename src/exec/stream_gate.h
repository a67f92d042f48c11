// CUDA assigns a hardware queue to a stream at its first use. Threads that do this at the same time
// may get the same queue. A kernel can then queue behind another rank's kernel that waits for it,
// and both hang (perf/results/h200.md). So the ranks of a process launch on new streams one at a
// time.
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
