// The simulator's clock: events come out in the order of their times, and those of one time in the
// order in which they went in, so that a simulation always runs the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct Event {
  double at = 0;
  uint32_t order = 0;    // set by the queue
  uint32_t subject = 0;  // the simulator's business
};

// A heap of four children a node: half as deep as a binary one, and the children share a cache
// line.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  uint64_t pushed() const { return pushed_; }

  void push(double at, uint32_t subject) {
    const Event event{at, static_cast<uint32_t>(pushed_++), subject};
    size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0) {
      const size_t parent = (hole - 1) / 4;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  Event pop() {
    const Event top = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return top;
    size_t hole = 0;
    for (;;) {
      const size_t first = 4 * hole + 1;
      if (first >= heap_.size()) break;
      size_t least = first;
      for (size_t child = first + 1; child < first + 4 && child < heap_.size(); child++)
        if (before(heap_[child], heap_[least])) least = child;
      if (!before(heap_[least], last)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = last;
    return top;
  }

 private:
  // The order may wrap round after 2^32 events; events that wait together are much nearer.
  static bool before(const Event& a, const Event& b) {
    return a.at < b.at || (a.at == b.at && static_cast<int32_t>(a.order - b.order) < 0);
  }

  std::vector<Event> heap_;
  uint64_t pushed_ = 0;
};

}  // namespace weft
