// See call_history.h.
#include "src/exec/call_history.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/schedule/collective.h"

namespace weft {
namespace {

constexpr std::array<const char*, 12> kTypes = {"int8",    "uint8",    "int32",      "uint32",
                                                "int64",   "uint64",   "float16",    "float32",
                                                "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<const char*, 5> kOps = {"sum", "prod", "max", "min", "avg"};

}  // namespace

const char* type_name(int type) {
  return type >= 0 && static_cast<size_t>(type) < kTypes.size() ? kTypes[static_cast<size_t>(type)]
                                                                : "?";
}

const char* operator_name(int op) {
  return op >= 0 && static_cast<size_t>(op) < kOps.size() ? kOps[static_cast<size_t>(op)] : "user";
}

// Stores have release order, so a reader that sees a new word also sees that `first` has changed.
void CallHistory::begin_run(uint64_t number, uint64_t call, uint64_t bytes) {
  constexpr auto kRelease = std::memory_order_release;
  if (runs_ > 0) all_[(runs_ - 1) % kRuns].end.store(next_.load(kRelaxed), kRelease);
  Run& run = all_[runs_++ % kRuns];
  run.first.store(0, kRelaxed);
  run.call.store(call, kRelease);
  run.bytes.store(bytes, kRelease);
  run.end.store(0, kRelease);
  run.first.store(number + 1, kRelease);
  last_call_ = call;
  last_bytes_ = bytes;
}

std::optional<CallRun> CallHistory::read(const Run& run, uint64_t next) {
  constexpr auto kAcquire = std::memory_order_acquire;
  const uint64_t first = run.first.load(kAcquire);
  const uint64_t call = run.call.load(kAcquire), bytes = run.bytes.load(kAcquire);
  const uint64_t end = run.end.load(kAcquire);
  if (first == 0 || run.first.load(kRelaxed) != first) return std::nullopt;
  const CallRun found{first - 1,
                      end != 0 ? std::min(end, next) : next,
                      {static_cast<CollectiveKind>(call & 0xff), static_cast<uint8_t>(call >> 8),
                       static_cast<uint8_t>(call >> 16), static_cast<int32_t>(call >> 32), bytes}};
  return found.first < found.end ? std::optional(found) : std::nullopt;
}

std::optional<PastCall> CallHistory::find(uint64_t number) const {
  const uint64_t next = next_.load(std::memory_order_acquire);
  for (const Run& run : all_)
    if (const auto found = read(run, next); found && found->first <= number && number < found->end)
      return found->call;
  return std::nullopt;
}

size_t CallHistory::latest(std::span<CallRun> to) const {
  const uint64_t next = next_.load(std::memory_order_acquire);
  if (!comparable_.load(kRelaxed)) return 0;
  std::array<CallRun, kRuns> all;
  size_t runs = 0;
  for (const Run& run : all_)
    if (const auto found = read(run, next)) all[runs++] = *found;
  const size_t wanted = std::min(runs, to.size());
  std::partial_sort_copy(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(runs), to.begin(),
                         to.begin() + static_cast<std::ptrdiff_t>(wanted),
                         [](const CallRun& a, const CallRun& b) { return a.first > b.first; });
  return wanted;
}

PastCall common_call(CollectiveKind kind, uint8_t type, uint8_t op, int32_t root, uint64_t bytes) {
  return {kind, type, op, root, kind == CollectiveKind::kAllToAllV ? 0 : bytes};
}

std::string describe(const PastCall& call) {
  const auto kind = static_cast<int>(call.kind);
  const std::string bytes =
      call.kind == CollectiveKind::kAllToAllV ? "" : fmt::format(" of {} bytes", call.bytes);
  return fmt::format("{}{} (type {}, op {}, root {})",
                     kind < kNamedKinds ? name(call.kind) : "something", bytes,
                     type_name(call.type), operator_name(call.op), call.root);
}

}  // namespace weft
