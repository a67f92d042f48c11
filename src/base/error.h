// Weft's only exception type. Slow paths throw it. Only api's guard() and thread entry points catch
// it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "include/nccl.h"

namespace weft {

class Error : public std::runtime_error {
 public:
  Error(ncclResult_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

template <typename... Args>
[[noreturn]] void fail(ncclResult_t code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// For a system call that failed: appends the text of errno.
template <typename... Args>
[[noreturn]] void fail_errno(int error, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ncclSystemError, fmt::format(format, std::forward<Args>(args)...) + ": " +
                                   std::string(std::generic_category().message(error)));
}

}  // namespace weft
