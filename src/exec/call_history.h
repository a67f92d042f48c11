// The last collectives that a rank has begun, so that a call can be compared with another rank's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "src/schedule/collective_kind.h"

namespace weft {

struct PastCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  uint8_t type = 0, op = 0;  // ncclDataType_t, ncclRedOp_t
  int32_t root = 0;
  uint64_t bytes = 0;  // of the count argument; 0 where ranks send blocks of different lengths

  bool operator==(const PastCall&) const = default;
};

// What all ranks of a collective must have in common.
PastCall common_call(CollectiveKind kind, uint8_t type, uint8_t op, int32_t root, uint64_t bytes);

// Equal calls, one after the other.
struct CallRun {
  uint64_t first = 0, end = 0;  // numbers; `end` is the one after the last
  PastCall call;
};

// "float32", of an ncclDataType_t; "sum", of an ncclRedOp_t. "?" and "user" for others.
const char* type_name(int type);
const char* operator_name(int op);

// "broadcast of 4096 bytes (type float32, op sum, root 1)".
std::string describe(const PastCall& call);

// Keeps the last kRuns runs of equal calls. One thread adds, with numbers that grow. Any thread may
// look.
class CallHistory {
 public:
  static constexpr size_t kRuns = 64;

  // A call like the one before, which is the usual case, costs one store.
  void add(uint64_t number, const PastCall& call) {
    const uint64_t packed = pack(call);
    if (packed != last_call_ || call.bytes != last_bytes_ || number != next_.load(kRelaxed))
      begin_run(number, packed, call.bytes);
    next_.store(number + 1, std::memory_order_release);
  }
  // Nothing if the rank has not begun it, or has forgotten it.
  std::optional<PastCall> find(uint64_t number) const;
  bool has_begun(uint64_t number) const { return begun() > number; }
  uint64_t begun() const { return next_.load(std::memory_order_acquire); }
  // The last runs, in any order. Returns their number. None if numbers are not comparable.
  size_t latest(std::span<CallRun> to) const;

  // From now on the numbers of ranks may differ although their calls agree. Any thread may say so.
  void numbers_differ() { comparable_.store(false, kRelaxed); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  struct Run {
    std::atomic<uint64_t> first{0};  // number plus one; 0: empty, or it changes
    std::atomic<uint64_t> call{0}, bytes{0};
    std::atomic<uint64_t> end{0};  // the number after its last; 0: it is the last run
  };
  // Nothing if the run is empty, or changes. `next`: next_ as it was before.
  static std::optional<CallRun> read(const Run& run, uint64_t next);
  static uint64_t pack(const PastCall& call) {
    return static_cast<uint64_t>(call.kind) | uint64_t{call.type} << 8 | uint64_t{call.op} << 16 |
           static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32;
  }
  void begin_run(uint64_t number, uint64_t call, uint64_t bytes);

  // Only the thread that adds reads these.
  uint64_t last_call_ = ~uint64_t{0}, last_bytes_ = 0;
  size_t runs_ = 0;                // so far
  std::atomic<uint64_t> next_{0};  // after the last call
  std::atomic<bool> comparable_{true};
  std::array<Run, kRuns> all_;
};

}  // namespace weft
