// Turns a failed library call into an exception with the library's error text.
#include "perf/common/errors.h"

namespace weft::perf {

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::string text(call);
  text.append(" failed: ").append(ncclGetErrorString(result));
  const char* detail = ncclGetLastError(nullptr);
  if (detail != nullptr && *detail != '\0') text.append(": ").append(detail);
  throw LibraryError(text);
}

}  // namespace weft::perf
