// Parameters (NCCL 2.30): the environment variables that Weft reads, by name and as text. Values
// are those that the next communicator gets. Weft's values have no C types, so there are no
// handles.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/api/nccl_2_30.h"
#include "src/base/config.h"

namespace weft::api {
namespace {

std::vector<ConfigEntry> parameters() { return describe(Config::from_environment()); }

// There are no handles, so every handle that a caller has is none of ours.
template <typename T>
ncclResult_t refuse_typed(const char* function, T* out) noexcept {
  if (out != nullptr) *out = {};
  return refuse_new(function, "use ncclParamGetParameter, which gives the value as text");
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
    const std::vector<ConfigEntry> entries = parameters();
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const ConfigEntry& entry) { return entry.name == key; });
    if (found == entries.end()) fail(ncclInvalidArgument, "key: Weft reads no variable '{}'", key);
    thread_local std::string text;  // callers keep the pointer until the thread's next call
    text = found->value;
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

WEFT_EXPORT(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char*)) {
  return refuse_typed("ncclParamBind", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI8, (ncclParamHandle_t, int8_t* out)) {
  return refuse_typed("ncclParamGetI8", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI16, (ncclParamHandle_t, int16_t* out)) {
  return refuse_typed("ncclParamGetI16", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI32, (ncclParamHandle_t, int32_t* out)) {
  return refuse_typed("ncclParamGetI32", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetI64, (ncclParamHandle_t, int64_t* out)) {
  return refuse_typed("ncclParamGetI64", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU8, (ncclParamHandle_t, uint8_t* out)) {
  return refuse_typed("ncclParamGetU8", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU16, (ncclParamHandle_t, uint16_t* out)) {
  return refuse_typed("ncclParamGetU16", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU32, (ncclParamHandle_t, uint32_t* out)) {
  return refuse_typed("ncclParamGetU32", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetU64, (ncclParamHandle_t, uint64_t* out)) {
  return refuse_typed("ncclParamGetU64", out);
}
WEFT_EXPORT(ncclResult_t, ParamGetStr, (ncclParamHandle_t, const char** out)) {
  return refuse_typed("ncclParamGetStr", out);
}
WEFT_EXPORT(ncclResult_t, ParamGet, (ncclParamHandle_t, void*, int, int* len)) {
  return refuse_typed("ncclParamGet", len);
}

}  // namespace weft::api
