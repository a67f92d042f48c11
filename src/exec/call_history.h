// The last collectives that a rank has begun, so that a call can be compared with another rank's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "src/schedule/collective_kind.h"

namespace weft {

struct PastCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  uint8_t type = 0, op = 0;  // ncclDataType_t, ncclRedOp_t
  int32_t root = 0;
  uint64_t bytes = 0;  // of the count argument

  bool operator==(const PastCall&) const = default;
};

// "float32", of an ncclDataType_t; "sum", of an ncclRedOp_t. "?" and "user" for others.
const char* type_name(int type);
const char* operator_name(int op);

// "broadcast of 4096 bytes (type float32, op sum, root 1)".
std::string describe(const PastCall& call);

// One thread adds. Any thread may look.
class CallHistory {
 public:
  void add(uint64_t number, const PastCall& call) {
    Entry& entry = entries_[number % entries_.size()];
    entry.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.call.store(static_cast<uint64_t>(call.kind) | uint64_t{call.type} << 8 |
                         uint64_t{call.op} << 16 |
                         static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32,
                     std::memory_order_relaxed);
    entry.bytes.store(call.bytes, std::memory_order_relaxed);
    entry.number.store(number + 1, std::memory_order_release);
  }
  // Nothing if the rank has not begun it, or has forgotten it.
  std::optional<PastCall> find(uint64_t number) const {
    const Entry& entry = entries_[number % entries_.size()];
    if (entry.number.load(std::memory_order_acquire) != number + 1) return std::nullopt;
    const uint64_t call = entry.call.load(std::memory_order_relaxed);
    const uint64_t bytes = entry.bytes.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.number.load(std::memory_order_relaxed) != number + 1) return std::nullopt;
    return PastCall{static_cast<CollectiveKind>(call & 0xff), static_cast<uint8_t>(call >> 8),
                    static_cast<uint8_t>(call >> 16), static_cast<int32_t>(call >> 32), bytes};
  }

 private:
  struct Entry {
    std::atomic<uint64_t> number{0};  // plus one
    std::atomic<uint64_t> call{0}, bytes{0};
  };
  std::array<Entry, 64> entries_;
};

}  // namespace weft
