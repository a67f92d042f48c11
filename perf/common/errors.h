// How a perf program ends: exit codes, and exceptions that carry what the library said.
#pragma once

#include <stdexcept>
#include <string>

#include "nccl.h"

namespace weft::perf {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,   // wrong data, or slower than NCCL_TESTS_MIN_BW
  kExitUsage = 2,    // bad flags, or nothing here to run on
  kExitLibrary = 3,  // the library returned an error
  kExitTimeout = 4,  // --timeout passed
};

// The command line, or the machine, does not allow what was asked. Ends with kExitUsage.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws LibraryError naming the call, the result and ncclGetLastError.
void check(ncclResult_t result, const char* call);

}  // namespace weft::perf
