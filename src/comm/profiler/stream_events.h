// Reports one stream to a profiler plugin. Each operation on the stream is an event (ProxyOp).
// Below it, each network message, or the operation's part of one, is an event (ProxyStep).
//
// Operations are announced with expect(), in the order in which they run, each with its number of
// messages. So counting tells which operation a message belongs to. NCCL's proxies know this from
// the operations posted to them. Headers cannot tell: send/recv and kernels number no operations.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "src/comm/profiler/event.h"
#include "src/transport/stream_observer.h"

namespace weft {

class Profiler;

// Thread-safe. The launching thread announces operations. The thread that moves the stream reports
// messages.
class StreamEvents final : public StreamObserver {
 public:
  // The profiler must outlive it.
  StreamEvents(const Profiler& profiler, int peer, int channel, bool sends);
  ~StreamEvents() override;  // ends all open events
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // Announces the next operation. Its event begins now. The event `parent` is still open.
  void expect(void* parent, uint64_t messages, uint64_t largest);
  // Counts the messages that arrived before their operation was announced.
  void take_early();
  // The last operation was not launched.
  void take_back() noexcept;
  // From now on expect() does nothing. Messages after the expected ones have no parent.
  void expect_no_more();

  void announced() noexcept override;
  void sent(std::span<const CarriedMessage> carried) noexcept override;
  void landed() noexcept override;
  void received(std::span<const CarriedMessage> carried) noexcept override;

 private:
  struct Expected {
    void* event = nullptr;  // nullptr: the plugin does not ask for it
    bool steps = false;     // the plugin asks for steps
    uint64_t messages = 0, handed = 0, done = 0;
    uint64_t bytes = 0;  // handed over
    int step = 0;        // the number of steps that have begun
  };
  // One operation's part of one network message.
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
  std::deque<Expected> operations_;   // not done yet, oldest first
  size_t current_ = 0;                // the first operation with messages to hand over
  void* step_ = nullptr;              // the step of its next network message
  bool announced_ = false;            // that message is announced
  std::deque<Part> flying_;           // sent, oldest first
  std::deque<CarriedMessage> early_;  // received before expect() of their operation, oldest first
  bool unknown_ = false;              // see expect_no_more()
};

}  // namespace weft
