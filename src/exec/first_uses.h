// CUDA gives a stream its hardware queue when the stream is first used, and the same one to threads
// that come at once: a kernel can then stand behind one of another rank that waits for it, and both
// wait for ever (perf/results/h200.md). So ranks of a process that share a GPU take turns there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace weft {

// Of one rank, by one thread at a time.
class FirstUses {
 public:
  // Held by one rank of the process: it may put work on streams that it has not used.
  using Turn = std::unique_lock<std::timed_mutex>;
  static constexpr size_t kMostKnown = 64;  // one that is forgotten takes a turn again
  // A launch blocks where a queue is full, and what empties it may be a kernel of another rank.
  static constexpr auto kLongestWait = std::chrono::milliseconds(100);

  // To be kept until the launch on these streams is done. Empty where none is new, and where
  // another rank keeps its turn for too long. Id 0: not known which stream that is.
  [[nodiscard]] Turn turn(std::span<const uint64_t> stream_ids);

 private:
  std::vector<uint64_t> known_;  // the latest last
};

}  // namespace weft
