// Parameters (NCCL 2.30): the environment variables that Weft reads. Values are those that the next
// communicator gets. A handle is a row of the table of variables.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/base/config.h"
#include "src/base/config_table.h"

namespace weft::api {
namespace {

std::vector<ConfigEntry> parameters() { return describe(Config::from_environment()); }

std::string text_of(std::string_view name) {
  for (const ConfigEntry& entry : parameters())
    if (entry.name == name) return entry.value;
  fail(ncclInvalidArgument, "key: Weft reads no variable '{}'", name);
}

const ConfigVariable& row_of(ncclParamHandle_t handle) {
  for (const ConfigVariable& row : config_variables())
    if (static_cast<const void*>(&row) == handle) return row;
  fail(ncclInvalidArgument, "h was not made by ncclParamBind");
}

// The value of a variable that is a whole number.
int64_t number_of(const ConfigVariable& row) {
  const Config config = Config::from_environment();
  return std::visit(
      [&](auto member) -> int64_t {
        using Value = std::decay_t<decltype(config.*member)>;
        if constexpr (std::is_integral_v<Value>) {
          return static_cast<int64_t>(config.*member);
        } else {
          fail(ncclInvalidArgument, "{} is not a whole number: use ncclParamGetStr", row.name);
        }
      },
      row.member);
}

template <typename T>
ncclResult_t get_number(const char* function, ncclParamHandle_t handle, T* out) noexcept {
  return guard(function, [&] {
    check_pointer("h", handle);
    check_pointer("out", out);
    const ConfigVariable& row = row_of(handle);
    const int64_t number = number_of(row);
    if (!std::in_range<T>(number))
      fail(ncclInvalidArgument, "{} is {}, too large for this type", row.name, number);
    *out = static_cast<T>(number);
  });
}

// Whole numbers as 8 bytes, everything else as text with its end.
std::string raw_bytes(const ConfigVariable& row) {
  const bool number = std::holds_alternative<bool Config::*>(row.member) ||
                      std::holds_alternative<int Config::*>(row.member) ||
                      std::holds_alternative<size_t Config::*>(row.member);
  if (!number) {
    const std::string text = text_of(row.name);
    return {text.c_str(), text.size() + 1};
  }
  const int64_t value = number_of(row);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

WEFT_EXPORT(ncclResult_t, ParamGetAllParameterKeys, (const char*** table, int* tableLen)) {
  return guard("ncclParamGetAllParameterKeys", [&] {
    check_pointer("table", table);
    check_pointer("tableLen", tableLen);
    // Callers keep the pointers until the thread's next call.
    thread_local std::vector<ConfigEntry> entries;
    thread_local std::vector<const char*> names;
    entries = parameters();
    names.clear();
    for (const ConfigEntry& entry : entries) names.push_back(entry.name.c_str());
    *table = names.data();
    *tableLen = static_cast<int>(names.size());
  });
}

WEFT_EXPORT(ncclResult_t, ParamGetParameter, (const char* key, const char** value, int* valueLen)) {
  return guard("ncclParamGetParameter", [&] {
    check_pointer("key", key);
    check_pointer("value", value);
    check_pointer("valueLen", valueLen);
    *value = nullptr;
    *valueLen = 0;
    thread_local std::string text;  // callers keep the pointer until the thread's next call
    text = text_of(key);
    *value = text.c_str();
    *valueLen = static_cast<int>(text.size());
  });
}

WEFT_EXPORT(void, ParamDumpAll, ()) {
  guard("ncclParamDumpAll", [] {
    for (const ConfigEntry& entry : parameters())
      std::printf("%s=%s\n", entry.name.c_str(), entry.value.c_str());
    std::fflush(stdout);
  });
}

WEFT_EXPORT(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char* key)) {
  return guard("ncclParamBind", [&] {
    check_pointer("out", out);
    *out = nullptr;
    check_pointer("key", key);
    for (const ConfigVariable& row : config_variables())
      if (std::strcmp(row.name, key) == 0)
        *out = reinterpret_cast<ncclParamHandle_t>(const_cast<ConfigVariable*>(&row));
    if (*out == nullptr) fail(ncclInvalidArgument, "key: Weft reads no variable '{}'", key);
  });
}

WEFT_EXPORT(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t* out)) {
  return get_number("ncclParamGetI8", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t* out)) {
  return get_number("ncclParamGetI16", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t* out)) {
  return get_number("ncclParamGetI32", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t* out)) {
  return get_number("ncclParamGetI64", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t* out)) {
  return get_number("ncclParamGetU8", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t* out)) {
  return get_number("ncclParamGetU16", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t* out)) {
  return get_number("ncclParamGetU32", h, out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t* out)) {
  return get_number("ncclParamGetU64", h, out);
}

WEFT_EXPORT(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char** out)) {
  return guard("ncclParamGetStr", [&] {
    check_pointer("h", h);
    check_pointer("out", out);
    thread_local std::string text;  // callers keep the pointer until the thread's next call
    text = text_of(row_of(h).name);
    *out = text.c_str();
  });
}

WEFT_EXPORT(ncclResult_t, ParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len)) {
  return guard("ncclParamGet", [&] {
    check_pointer("h", h);
    check_pointer("out", out);
    check_pointer("len", len);
    *len = 0;
    const std::string bytes = raw_bytes(row_of(h));
    if (maxLen < static_cast<int>(bytes.size()))
      fail(ncclInvalidArgument, "maxLen is {}, the value has {} bytes", maxLen, bytes.size());
    std::memcpy(out, bytes.data(), bytes.size());
    *len = static_cast<int>(bytes.size());
  });
}

}  // namespace weft::api
