// How many sends to every peer, and receives from it, a rank has begun. Sends and receives have no
// numbers, but the n-th send of a rank to another one meets that one's n-th receive from it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

// reset() comes first. add() and begin_batch() are for the thread that makes calls. Any thread may
// look.
class MessageCounts {
 public:
  void reset(int nranks) {
    counts_ = std::make_unique<Count[]>(2 * static_cast<size_t>(nranks));
    size_ = 2 * static_cast<size_t>(nranks);
  }
  void add(bool sends, int peer) {
    auto& now = counts_[index(sends, peer)].now;
    now.store(now.load(kRelaxed) + 1, kRelaxed);
  }
  // What was begun until now belongs to earlier batches.
  void begin_batch() {
    for (size_t i = 0; i < size_; i++)
      counts_[i].before.store(counts_[i].now.load(kRelaxed), kRelaxed);
  }
  uint64_t begun(bool sends, int peer) const {
    return counts_[index(sends, peer)].now.load(kRelaxed);
  }
  // Of this batch, with all peers.
  uint64_t in_batch() const {
    uint64_t messages = 0;
    for (size_t i = 0; i < size_; i++)
      messages += counts_[i].now.load(kRelaxed) - counts_[i].before.load(kRelaxed);
    return messages;
  }
  uint64_t before_batch(bool sends, int peer) const {
    return counts_[index(sends, peer)].before.load(kRelaxed);
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  struct Count {
    std::atomic<uint64_t> now{0}, before{0};
  };
  static size_t index(bool sends, int peer) { return 2 * static_cast<size_t>(peer) + sends; }

  std::unique_ptr<Count[]> counts_;
  size_t size_ = 0;
};

}  // namespace weft
