// See guard.h.
#include "src/api/guard.h"

#include "src/base/last_error.h"

namespace weft::api {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t report(const char* function, ncclResult_t code, const char* text) noexcept {
  try {
    last_error() = fmt::format("{}: {}", function, text);
    remember_error(last_error());
    note_group_error(code, last_error());
    WEFT_WARN("{}", last_error());
  } catch (const std::exception&) {
    // There is no memory for the text. The caller still gets the code.
  }
  return code;
}

}  // namespace weft::api
