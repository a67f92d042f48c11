// See turns.h.
#include "src/exec/host/turns.h"

#include <thread>

#include "src/base/fork.h"

namespace weft::host {
namespace {

constexpr std::chrono::microseconds kNap{20};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Turns& Turns::instance() {
  static PerProcess<Turns> turns;
  return turns.get();
}

void Turns::begin(Priority priority) {
  Class& own = classes_[index(priority)];
  own.until_ns.store(now_ns() + lately_ns_, std::memory_order_relaxed);
  own.running.fetch_add(1, std::memory_order_release);
}

void Turns::moves(Priority priority) {
  classes_[index(priority)].until_ns.store(now_ns() + lately_ns_, std::memory_order_relaxed);
}

void Turns::end(Priority priority) {
  classes_[index(priority)].running.fetch_sub(1, std::memory_order_release);
}

bool Turns::must_wait(Priority priority) const {
  for (size_t c = index(priority) + 1; c < classes_.size(); c++)
    if (classes_[c].running.load(std::memory_order_acquire) > 0 &&
        now_ns() < classes_[c].until_ns.load(std::memory_order_relaxed))
      return true;
  return false;
}

void Turn::enter() {
  turns_ = given_ != nullptr ? given_ : &Turns::instance();  // a forked child has its own
  credit_.store(0, std::memory_order_relaxed);
  turns_->begin(priority_);
}

void Turn::next(bool moved) {
  if (!counts_) return;
  if (moved) turns_->moves(priority_);
  if (!turns_->must_wait(priority_)) {
    credit_.store(0, std::memory_order_relaxed);  // the next one to come goes first at once
    return;
  }
  if (credit_.load(std::memory_order_relaxed) > 0) return;
  paused_.store(true, std::memory_order_relaxed);
  const auto limit = std::chrono::steady_clock::now() + kLongestPause;
  while (turns_->must_wait(priority_) && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(kNap);
  credit_.store(kCredit, std::memory_order_relaxed);
  paused_.store(false, std::memory_order_relaxed);
}

}  // namespace weft::host
