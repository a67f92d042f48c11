// See errors.h.
#include "plugins/common/errors.h"

#include "src/base/log.h"

namespace weft::net_common {
namespace {

thread_local std::string last_text;  // NOLINT(cert-err58-cpp): nothing throws here

}  // namespace

std::atomic<net_abi::Logger> logger = nullptr;

ncclResult_t report(ncclResult_t code, const std::string& text) {
  last_text = text;
  if (const net_abi::Logger tell = logger; tell != nullptr)
    tell(net_abi::kLogWarn, log::kAll, "net", 0, "%s", text.c_str());
  return code;
}

ncclResult_t decline(ncclResult_t code, const std::string& text) {
  last_text = text;
  return code;
}

const char* last_error() { return last_text.c_str(); }

void inform(const std::string& text) {
  if (const net_abi::Logger tell = logger; tell != nullptr)
    tell(net_abi::kLogInfo, log::kNet, "net", 0, "%s", text.c_str());
}

}  // namespace weft::net_common
