// How long this thread has computed, and how slow the machine is just now: what a test may bound on
// a machine that is not ours, or that others use too.
#pragma once

#include <ctime>

namespace weft::test {

inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Whether `seconds` are below the limit. Where they are not, the limit is that of a slower machine:
// longer by as much as a fixed piece of work takes longer, here and now, than where limits were
// set.
bool in_time(double seconds, double limit);

}  // namespace weft::test
