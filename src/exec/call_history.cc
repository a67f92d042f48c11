// See call_history.h.
#include "src/exec/call_history.h"

#include <fmt/format.h>

#include "src/schedule/collective.h"

namespace weft {
namespace {

constexpr std::array<const char*, 12> kTypes = {"int8",    "uint8",    "int32",      "uint32",
                                                "int64",   "uint64",   "float16",    "float32",
                                                "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<const char*, 5> kOps = {"sum", "prod", "max", "min", "avg"};

}  // namespace

std::string describe(const PastCall& call) {
  const auto kind = static_cast<int>(call.kind);
  return fmt::format("{} of {} bytes (type {}, op {}, root {})",
                     kind < kCollectiveKinds ? name(call.kind) : "something", call.bytes,
                     call.type < kTypes.size() ? kTypes[call.type] : "?",
                     call.op < kOps.size() ? kOps[call.op] : "of its own", call.root);
}

}  // namespace weft
