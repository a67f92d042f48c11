// See crash_trace.h.
#include "tests/support/crash_trace.h"

#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace weft::test {
namespace {

void tell(int signal) {
  void* frames[64];
  // (It may allocate at its first use, which trace_crashes() makes.)
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  raise(signal);  // the default again
}

}  // namespace

void trace_crashes() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  void* frame = nullptr;
  backtrace(&frame, 1);
  struct sigaction action {};
  action.sa_handler = tell;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigaction(signal, &action, nullptr);
#else
  static_cast<void>(tell);
#endif
}

}  // namespace weft::test
