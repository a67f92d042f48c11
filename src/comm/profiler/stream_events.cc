// See stream_events.h.
#include "src/comm/profiler/stream_events.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/comm/profiler/profiler.h"

namespace weft {

using namespace profiler_abi;  // NOLINT

StreamEvents::StreamEvents(const Profiler& profiler, int peer, int channel, bool sends)
    : profiler_(profiler), link_{peer, channel, sends} {}

StreamEvents::~StreamEvents() {
  end(step_);
  for (Part& part : flying_) end(part.step);
  for (Expected& operation : operations_) end(operation.event);
}

void StreamEvents::end(void*& event) {
  if (event != nullptr) profiler_.stop_event(event);
  event = nullptr;
}

void StreamEvents::expect(void* parent, uint64_t messages, uint64_t largest) {
  const std::lock_guard lock(mutex_);
  if (!unknown_) add(parent, messages, largest);
}

// The number of messages that expected operations still lack.
uint64_t StreamEvents::missing() const {
  uint64_t messages = 0;
  for (size_t i = current_; i < operations_.size(); i++)
    messages += operations_[i].messages - operations_[i].handed;
  return messages;
}

void StreamEvents::take_early() {
  const std::lock_guard lock(mutex_);
  const size_t count = std::min<size_t>(missing(), early_.size());
  const auto end = early_.begin() + static_cast<ptrdiff_t>(count);
  const std::vector<CarriedMessage> here(early_.begin(), end);
  early_.erase(early_.begin(), end);
  take(here);
}

void StreamEvents::add(void* parent, uint64_t messages, uint64_t largest) {
  Expected operation;
  operation.messages = messages;
  operation.steps = profiler_.asks(kProxyStep);
  ProfilerEvent event;
  event.kind = kProxyOp;
  event.parent = parent;
  event.link = &link_;
  event.steps = messages;
  event.largest = largest;
  operation.event = profiler_.start_event(event);
  const bool next = !waiting();
  operations_.push_back(operation);
  if (next) begin_step();
}

void StreamEvents::add_unknown(std::span<const CarriedMessage> carried) {
  uint64_t largest = 0;
  for (const CarriedMessage& message : carried) largest = std::max(largest, message.bytes);
  add(nullptr, carried.size(), largest);
}

void StreamEvents::take_back() noexcept {
  const std::lock_guard lock(mutex_);
  if (unknown_ || operations_.empty() || operations_.back().handed > 0) return;
  if (current_ + 1 == operations_.size()) end(step_);
  end(operations_.back().event);
  operations_.pop_back();
}

void StreamEvents::expect_no_more() {
  const std::lock_guard lock(mutex_);
  unknown_ = true;
  const std::vector<CarriedMessage> here(early_.begin(), early_.end());
  early_.clear();
  take(here);
}

// A step begins before its data exists. Its wait then shows which rank is late.
void StreamEvents::begin_step() {
  announced_ = false;
  if (!waiting()) return;
  Expected& operation = operations_[current_];
  if (operation.step++ == 0) profiler_.record(operation.event, kOpInProgress, {});
  profiler_.record(operation.event, link_.sends ? kOpSendPosted : kOpRecvPosted,
                   {operation.bytes, operation.step});
  if (!operation.steps) return;
  ProfilerEvent event;
  event.kind = kProxyStep;
  event.parent = operation.event;
  event.steps = static_cast<uint64_t>(operation.step - 1);
  step_ = profiler_.start_event(event);
  profiler_.record(step_, link_.sends ? kStepSendGpuWait : kStepRecvWait, {});
}

void StreamEvents::announced() noexcept {
  const std::lock_guard lock(mutex_);
  announce();
}

void StreamEvents::announce() {
  if (announced_ || !waiting() || !link_.sends) return;
  announced_ = true;
  const Expected& operation = operations_[current_];
  profiler_.record(operation.event, kOpSendFifoWait, {operation.bytes, operation.step});
  profiler_.record(step_, kStepSendPeerWait, {});
}

// Takes the current operation's messages out of `carried` and records them.
StreamEvents::Part StreamEvents::hand_over(std::span<const CarriedMessage>& carried) {
  announce();
  Expected& operation = operations_[current_];
  const auto count = std::min<uint64_t>(carried.size(), operation.messages - operation.handed);
  uint64_t bytes = 0;
  for (const CarriedMessage& message : carried.first(count)) bytes += message.bytes;
  carried = carried.subspan(count);
  operation.handed += count;
  operation.bytes += bytes;
  const OperationProgress so_far{operation.bytes, operation.step}, own{bytes, 0};
  if (link_.sends) {
    profiler_.record(operation.event, kOpSendTransmitted, so_far);
    profiler_.record(step_, kStepSendWait, own);
  } else {
    // Nothing has to be flushed. The receiver takes the data from the FIFO without the proxy.
    profiler_.record(operation.event, kOpRecvReceived, so_far);
    profiler_.record(step_, kStepRecvFlushWait, own);
    profiler_.record(operation.event, kOpRecvTransmitted, so_far);
    profiler_.record(step_, kStepRecvGpuWait, own);
  }
  const Part part{std::exchange(step_, nullptr), count, carried.empty()};
  if (operation.handed == operation.messages) current_++;
  return part;
}

// Parts end in the order of hand_over(), so a part belongs to the oldest operation.
void StreamEvents::finish(Part& part) {
  end(part.step);
  Expected& operation = operations_.front();
  operation.done += part.messages;
  profiler_.record(operation.event, link_.sends ? kOpSendDone : kOpRecvDone,
                   {operation.bytes, operation.step});
  if (operation.done < operation.messages) return;
  end(operation.event);
  operations_.pop_front();
  current_--;
}

void StreamEvents::sent(std::span<const CarriedMessage> carried) noexcept {
  const std::lock_guard lock(mutex_);
  while (!carried.empty()) {
    if (!waiting()) add_unknown(carried);
    flying_.push_back(hand_over(carried));
    begin_step();
  }
}

void StreamEvents::landed() noexcept {
  const std::lock_guard lock(mutex_);
  for (bool last = false; !last; flying_.pop_front()) {
    last = flying_.front().last;
    finish(flying_.front());
  }
}

void StreamEvents::received(std::span<const CarriedMessage> carried) noexcept {
  const std::lock_guard lock(mutex_);
  if (early_.empty()) return take(carried);
  early_.insert(early_.end(), carried.begin(), carried.end());
}

void StreamEvents::take(std::span<const CarriedMessage> carried) {
  while (!carried.empty()) {
    if (!waiting() && !unknown_) {
      early_.insert(early_.end(), carried.begin(), carried.end());
      return;
    }
    if (!waiting()) add_unknown(carried);
    Part part = hand_over(carried);
    finish(part);
    begin_step();
  }
}

}  // namespace weft
