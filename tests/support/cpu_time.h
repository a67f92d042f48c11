// The CPU time of this thread, and how slow the machine is at the moment. Tests bound these on
// machines that are foreign or shared with others.
#pragma once

#include <ctime>

namespace weft::test {

inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Whether `seconds` are below the limit. If not, measures a fixed piece of work here and now. The
// limit grows by the factor that this work is slower than where limits were set.
bool in_time(double seconds, double limit);

}  // namespace weft::test
