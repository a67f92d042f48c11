// What a profiler plugin is told of one stream: an event for each operation that uses it (ProxyOp),
// and below it one for each network message, or part of one, that belongs to the operation
// (ProxyStep).
//
// Whose messages these are is known because operations are expected in the order in which they run,
// each with its number of messages: what NCCL's proxies learn from the operations that are posted
// to them. Headers could not tell: sends of two ranks have no numbers, kernels neither.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "src/comm/profiler/event.h"
#include "src/transport/stream_observer.h"

namespace weft {

class Profiler;

// Thread-safe: operations are expected by the thread that launches, messages told of by whoever
// moves the stream.
class StreamEvents final : public StreamObserver {
 public:
  // The profiler must outlive it.
  StreamEvents(const Profiler& profiler, int peer, int channel, bool sends);
  ~StreamEvents() override;  // ends what has not ended
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // The next operation, whose event `parent` is still open. Its own event begins now; messages that
  // were there before it wait for take_early().
  void expect(void* parent, uint64_t messages, uint64_t largest);
  void take_early();
  // The last one was not launched.
  void take_back() noexcept;
  // From now on messages may come of which expect() has not told, and none is expected any more:
  // those that come after the expected ones have no parent.
  void expect_no_more();

  void announced() noexcept override;
  void sent(std::span<const CarriedMessage> carried) noexcept override;
  void landed() noexcept override;
  void received(std::span<const CarriedMessage> carried) noexcept override;

 private:
  struct Expected {
    void* event = nullptr;  // nullptr: not asked for
    bool steps = false;     // are asked for
    uint64_t messages = 0, handed = 0, done = 0;
    uint64_t bytes = 0;  // handed over
    int step = 0;        // the number of steps that have begun
  };
  // What one network message has of one operation.
  struct Part {
    void* step = nullptr;
    uint64_t messages = 0;
    bool last = false;  // of the network message
  };
  void add(void* parent, uint64_t messages, uint64_t largest);
  void add_unknown(std::span<const CarriedMessage> carried);
  void begin_step();
  void end(void*& event);
  void announce();
  Part hand_over(std::span<const CarriedMessage>& carried);
  void finish(Part& part);
  void take(std::span<const CarriedMessage> carried);
  uint64_t missing() const;
  bool waiting() const { return current_ < operations_.size(); }

  const Profiler& profiler_;
  const ProfiledLink link_;
  std::mutex mutex_;
  std::deque<Expected> operations_;   // that are not done, oldest first
  size_t current_ = 0;                // the first with messages that have not been handed over
  void* step_ = nullptr;              // of the current one, for its next network message
  bool announced_ = false;            // that message
  std::deque<Part> flying_;           // sent, oldest first
  std::deque<CarriedMessage> early_;  // received before their operation was expected, oldest first
  bool unknown_ = false;              // see expect_no_more()
};

}  // namespace weft
