// Errors of a network plugin: a code for NCCL's ABI, and a text kept per thread.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "src/transport/net_abi/common.h"

namespace weft::net_common {

// The logger passed to init(); nullptr before. A second communicator's init passes it again while
// connections of the first report errors.
extern std::atomic<net_abi::Logger> logger;

// Keeps the text for last_error() of this thread, logs it as a warning and returns the code.
ncclResult_t report(ncclResult_t code, const std::string& text);
const char* last_error();
// The same without a warning, for cases that are no fault, such as a machine without the device.
ncclResult_t decline(ncclResult_t code, const std::string& text);

template <typename... Args>
ncclResult_t failed(ncclResult_t code, fmt::format_string<Args...> format, Args&&... args) {
  return report(code, fmt::format(format, std::forward<Args>(args)...));
}

// An INFO line of the network subsystem.
void inform(const std::string& text);

}  // namespace weft::net_common
