// How long this thread has computed: what a test may bound on a machine that others use too.
#pragma once

#include <ctime>

namespace weft::test {

inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace weft::test
