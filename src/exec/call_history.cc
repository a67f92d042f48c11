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

const char* type_name(int type) {
  return type >= 0 && static_cast<size_t>(type) < kTypes.size() ? kTypes[static_cast<size_t>(type)]
                                                                : "?";
}

const char* operator_name(int op) {
  return op >= 0 && static_cast<size_t>(op) < kOps.size() ? kOps[static_cast<size_t>(op)] : "user";
}

std::string describe(const PastCall& call) {
  const auto kind = static_cast<int>(call.kind);
  return fmt::format("{} of {} bytes (type {}, op {}, root {})",
                     kind < kNamedKinds ? name(call.kind) : "something", call.bytes,
                     type_name(call.type), operator_name(call.op), call.root);
}

}  // namespace weft
