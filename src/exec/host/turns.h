// Which of a process's batches go first. While a batch of a higher class moves data, batches of
// lower classes pause. A pause is short, and after it a batch may move a credit's worth of data. So
// no class starves.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft::host {

// The class of a communicator's calls.
enum class Priority : int8_t { kLow = -1, kNormal = 0, kHigh = 1 };

// Thread-safe. One per process. It costs a load while all communicators have the normal class.
class Turns {
 public:
  static Turns& instance();
  // A batch that has not moved for so long waits for something else than a core.
  explicit Turns(std::chrono::nanoseconds lately = std::chrono::milliseconds(1))
      : lately_ns_(lately.count()) {}

  // Some communicator of the process has, or had, another class than the others.
  static void use() { used_.store(true, std::memory_order_relaxed); }
  static bool used() { return used_.load(std::memory_order_relaxed); }

  // A batch of the class runs, or has moved data.
  void begin(Priority priority);
  void moves(Priority priority);
  void end(Priority priority);
  // Whether a batch of a higher class runs, and began or moved data lately. One that waits for its
  // peers or its caller holds nobody up.
  bool must_wait(Priority priority) const;

 private:
  struct Class {
    std::atomic<int> running{0};
    std::atomic<int64_t> until_ns{0};
  };
  static size_t index(Priority priority) { return static_cast<size_t>(priority) + 1; }
  const int64_t lately_ns_;
  static inline std::atomic<bool> used_{false};
  std::array<Class, 3> classes_;
};

// A batch's part. The thread that runs the batch uses it; helpers only ask paused().
class Turn {
 public:
  static constexpr int64_t kCredit = 4 << 20;  // bytes
  static constexpr std::chrono::microseconds kLongestPause{2000};

  // nullptr: those of the process.
  explicit Turn(Turns* turns = nullptr) : given_(turns) {}

  void begin(Priority priority) {
    priority_ = priority;
    counts_ = Turns::used();
    if (counts_) enter();
  }
  void end() {
    if (counts_) turns_->end(priority_);
  }
  // Between passes of the batch. `moved`: the last pass moved data. May pause.
  void next(bool moved);
  // Data that was moved, by any thread.
  void count(uint64_t bytes) {
    credit_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  bool counts() const { return counts_; }
  int64_t credit() const { return credit_.load(std::memory_order_relaxed); }
  Priority priority() const { return priority_; }
  bool paused() const { return paused_.load(std::memory_order_relaxed); }

 private:
  void enter();

  Turns* const given_;
  Turns* turns_ = nullptr;
  Priority priority_ = Priority::kNormal;
  bool counts_ = false;  // classes are in use
  std::atomic<int64_t> credit_{0};
  std::atomic<bool> paused_{false};
};

}  // namespace weft::host
