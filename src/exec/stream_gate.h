// CUDA gives a stream its hardware queue when the stream is first used, and the same one to threads
// that come at once: a kernel can then stand behind one of another rank that waits for it, and both
// wait for ever (perf/results/h200.md). So ranks of a process pass one at a time there.
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
