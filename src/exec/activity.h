// What a rank does in its communicator: its current or last operation, and whom it waits for.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/base/rough_clock.h"
#include "src/schedule/collective_kind.h"

namespace weft {

// A plain value, without pointers: ranks may send it to each other. Times are lengths, because
// clocks of hosts differ.
struct OperationState {
  enum class Phase : uint8_t {
    kNone,      // no operation so far
    kRunning,   // host mode: its call has not returned
    kLaunched,  // GPUs: a kernel runs it, or has run it
    kDone,
    kFailed,
  };
  Phase phase = Phase::kNone;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool sends = false;        // kSendRecv: which half
  uint8_t type = 0, op = 0;  // ncclDataType_t, ncclRedOp_t
  int32_t root = 0;          // or the peer of a send or receive
  uint64_t number = 0;       // among the collectives of the communicator; 0 for sends and receives
  uint64_t count = 0;        // elements per block
  uint64_t begun = 0;        // operations of the communicator that have begun, with this one
  uint32_t together = 0;     // operations launched together, with this one
  double seconds = 0;        // kRunning, kLaunched: since its begin. kDone, kFailed: since its end
                             // In steps of RoughClock::kTickMs.
  int32_t waits_for = -1;    // a rank or CPU node; -1: it does not wait, or only for a moment
  bool waits_to_send = false;  // it waits until the peer takes data, not for data
  uint32_t lane = 0, step = 0;
  uint64_t slice = 0;
  double waits_seconds = 0;
};

// One per rank of a communicator. begin(), turn_to(), end() and launched() are for the thread
// that makes calls. Any thread may call the other functions.
class Activity {
 public:
  struct Begin {
    CollectiveKind kind = CollectiveKind::kAllReduce;
    bool sends = false;
    uint8_t type = 0, op = 0;
    int32_t root = 0;
    uint64_t number = 0, count = 0;
  };
  // An operation begins. If one runs already, they run together and the first is the current one.
  void begin(const Begin& operation) {
    const uint64_t begun = (head_.load(kRelaxed) >> 8) + 1;
    if (phase() == Phase::kRunning) return join(begun);
    since_ns_.store(RoughClock::now_ns(), kRelaxed);
    if (!is_current(operation, begun, 1)) return set(operation, begun, 1);
    head_.store(begun << 8 | static_cast<uint64_t>(Phase::kRunning), kRelaxed);
  }
  // Of the running operations, this one is current from now on.
  void turn_to(const Begin& operation);
  // All running operations are complete, or one failed.
  void end(bool failed) {
    if (phase() != Phase::kRunning) return;
    since_ns_.store(RoughClock::now_ns(), kRelaxed);
    set_phase(failed ? Phase::kFailed : Phase::kDone);
    if (wait_.load(kRelaxed) != 0) moves();
  }
  // All running operations are on their streams.
  void launched() {
    if (phase() == Phase::kRunning) set_phase(Phase::kLaunched);
  }

  struct Wait {
    int32_t peer = -1;
    bool to_send = false;
    uint32_t lane = 0, step = 0;
    uint64_t slice = 0;
    int64_t since_ns = 0;  // CLOCK_MONOTONIC
  };
  // The current operation waits. Only for waits that are long enough to be asked about.
  void waits(const Wait& wait);
  void moves() { wait_.store(0, std::memory_order_relaxed); }

  OperationState state() const;

 private:
  using Word = std::atomic<uint64_t>;
  using Phase = OperationState::Phase;
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  static uint64_t packed(const Begin& operation) {
    return static_cast<uint64_t>(operation.kind) | uint64_t{operation.sends} << 8 |
           uint64_t{operation.type} << 16 | uint64_t{operation.op} << 24 |
           static_cast<uint64_t>(static_cast<uint32_t>(operation.root)) << 32;
  }
  // These are for the thread that makes calls.
  Phase phase() const { return static_cast<Phase>(head_.load(kRelaxed) & 0xff); }
  bool is_current(const Begin& operation, uint64_t begun, uint32_t together) const {
    return call_.load(kRelaxed) == packed(operation) && count_.load(kRelaxed) == operation.count &&
           before_.load(kRelaxed) == begun - operation.number &&
           together_.load(kRelaxed) == together;
  }
  // Another operation runs together with the current one.
  void join(uint64_t begun);
  // Makes the operation the current one.
  void set(const Begin& operation, uint64_t begun, uint32_t together);
  void set_phase(Phase phase) {
    head_.store((head_.load(kRelaxed) & ~uint64_t{0xff}) | static_cast<uint64_t>(phase), kRelaxed);
  }

  // The operations begun, and the phase. It changes last. While it says kChanging, the next words
  // change, and a reader tries again. An operation like the one before changes no other word.
  alignas(64) Word head_{0};
  Word call_{0};  // kind, half, type, op, root
  Word count_{0};
  Word before_{0};  // operations begun minus the operation's number
  Word together_{0};
  std::atomic<int64_t> since_ns_{0};
  // Any thread may write these. wait_ is written last.
  alignas(64) Word wait_{0};  // 0: none; peer + 1, direction, lane, step
  Word slice_{0};
  std::atomic<int64_t> wait_since_ns_{0};
};

}  // namespace weft
