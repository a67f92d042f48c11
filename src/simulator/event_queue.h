// The simulator's event queue. Events come out in order of time. Events of equal time come out in
// the order in which they went in, so a simulation always runs the same way.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct Event {
  double at = 0;
  uint32_t subject = 0;  // kind and index: see SimulationRun::push()
};

// A radix heap. No event lies before the last one that came out. A bucket holds the events whose
// time differs from that last time in the same highest bit. The queue touches a bucket again only
// when all earlier events are gone. Machines are regular: many events share a time and move
// together.
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }
  uint64_t pushed() const { return pushed_; }

  // `at` must not be before the last event that came out; an earlier time counts as that time.
  void push(double at, uint32_t subject) {
    pushed_++;
    size_++;
    put({at, subject});
  }

  Event pop() {
    if (next_ == buckets_[0].size()) advance();
    size_--;
    return buckets_[0][next_++];
  }

 private:
  // Times are not negative, so their bits sort like the times.
  static uint64_t bits(double at) { return std::bit_cast<uint64_t>(at); }

  void put(const Event& event) {
    const uint64_t key = std::max(bits(event.at), last_);
    const auto bucket = static_cast<size_t>(std::bit_width(key ^ last_));
    buckets_[bucket].push_back(event);
    used_ |= bucket == 0 ? 0 : uint64_t{1} << (bucket - 1);
  }

  // Moves the events of the next time into the first bucket. Events of equal time stay in one
  // bucket, so they keep their order.
  void advance() {
    buckets_[0].clear();
    next_ = 0;
    const auto lowest = static_cast<size_t>(std::countr_zero(used_)) + 1;
    used_ &= used_ - 1;
    moving_.swap(buckets_[lowest]);
    last_ =
        bits(std::min_element(moving_.begin(), moving_.end(), [](const Event& a, const Event& b) {
               return a.at < b.at;
             })->at);
    for (const Event& event : moving_) put(event);
    moving_.clear();
  }

  std::array<std::vector<Event>, 65> buckets_;  // by the highest bit that differs; 0: none differs
  std::vector<Event> moving_;
  uint64_t used_ = 0;  // bit i: bucket i + 1 has events
  uint64_t last_ = 0;
  size_t next_ = 0;  // in the first bucket
  size_t size_ = 0;
  uint64_t pushed_ = 0;
};

}  // namespace weft
