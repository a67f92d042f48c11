// A thread that makes calls writes words that any thread reads. While it changes several words,
// head_ says so. It stores them with release order, so a reader that sees a new word also sees that
// head_ has changed.
#include "src/exec/activity.h"

#include <sched.h>

#include <algorithm>

#include "src/base/rough_clock.h"

namespace weft {
namespace {

constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;

// A writer is done within nanoseconds, unless its thread lost its core.
constexpr int kMostReads = 1000;
constexpr uint64_t kChanging = 0xff;  // instead of a phase
constexpr uint64_t kMostLane = 0x7fff, kMostStep = 0xffff;

double seconds_since(int64_t then, int64_t now) {
  return std::max(0.0, static_cast<double>(now - then) * 1e-9);
}

}  // namespace

void Activity::set(const Begin& operation, uint64_t begun, uint32_t together) {
  head_.store(begun << 8 | kChanging, kRelaxed);
  call_.store(packed(operation), kRelease);
  count_.store(operation.count, kRelease);
  before_.store(begun - operation.number, kRelease);
  together_.store(together, kRelease);
  head_.store(begun << 8 | static_cast<uint64_t>(Phase::kRunning), kRelease);
}

// The number of the current operation stays, the number of operations grows.
void Activity::join(uint64_t begun) {
  head_.store(begun << 8 | kChanging, kRelaxed);
  before_.store(before_.load(kRelaxed) + 1, kRelease);
  together_.store(together_.load(kRelaxed) + 1, kRelease);
  head_.store(begun << 8 | static_cast<uint64_t>(Phase::kRunning), kRelease);
}

void Activity::turn_to(const Begin& operation) {
  const uint64_t begun = head_.load(kRelaxed) >> 8;
  const auto together = static_cast<uint32_t>(together_.load(kRelaxed));
  if (!is_current(operation, begun, together)) set(operation, begun, together);
}

void Activity::waits(const Wait& wait) {
  wait_since_ns_.store(wait.since_ns, kRelaxed);
  slice_.store(wait.slice, kRelaxed);
  wait_.store(static_cast<uint64_t>(static_cast<uint32_t>(wait.peer + 1)) |
                  uint64_t{wait.to_send} << 32 | std::min<uint64_t>(wait.lane, kMostLane) << 33 |
                  std::min<uint64_t>(wait.step, kMostStep) << 48,
              kRelease);
}

OperationState Activity::state() const {
  OperationState state;
  uint64_t head = 0, call = 0, before = 0;
  for (int i = 0; i < kMostReads; i++) {
    head = head_.load(kAcquire);
    call = call_.load(kAcquire);
    state.count = count_.load(kAcquire);
    before = before_.load(kAcquire);
    state.together = static_cast<uint32_t>(together_.load(kAcquire));
    if ((head & 0xff) != kChanging && head_.load(kRelaxed) == head) break;
    sched_yield();
  }
  const int64_t now = monotonic_ns();
  state.begun = head >> 8;
  state.number = state.begun - before;
  state.phase = static_cast<Phase>(head & 0xff);
  state.kind = static_cast<CollectiveKind>(call & 0xff);
  state.sends = (call >> 8 & 1) != 0;
  state.type = static_cast<uint8_t>(call >> 16);
  state.op = static_cast<uint8_t>(call >> 24);
  state.root = static_cast<int32_t>(static_cast<uint32_t>(call >> 32));
  if (state.phase != Phase::kNone) state.seconds = seconds_since(since_ns_.load(kRelaxed), now);
  const uint64_t wait = wait_.load(kAcquire);
  if (wait == 0 || (state.phase != Phase::kRunning && state.phase != Phase::kLaunched))
    return state;
  state.waits_for = static_cast<int32_t>(static_cast<uint32_t>(wait)) - 1;
  state.waits_to_send = (wait >> 32 & 1) != 0;
  state.lane = static_cast<uint32_t>(wait >> 33 & kMostLane);
  state.step = static_cast<uint32_t>(wait >> 48 & kMostStep);
  state.slice = slice_.load(kRelaxed);
  state.waits_seconds = seconds_since(wait_since_ns_.load(kRelaxed), now);
  return state;
}

}  // namespace weft
