// How a perf program ends: exit codes, and exceptions with the library's error text.
#pragma once

#include <stdexcept>
#include <string>

#include "nccl.h"

namespace weft::perf {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,   // wrong data, or slower than NCCL_TESTS_MIN_BW
  kExitUsage = 2,    // bad flags, or no device to run on
  kExitLibrary = 3,  // the library returned an error
  kExitTimeout = 4,  // --timeout passed
};

// The command line asks for something that it or the machine does not allow. Ends with kExitUsage.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws LibraryError naming the call, the result and ncclGetLastError.
void check(ncclResult_t result, const char* call);

}  // namespace weft::perf
