// Schedules made for machines of links: fetched from the cache folder where they were made before,
// otherwise synthesized and put there. Keyed by the machine's fingerprint, the order of its GPUs
// and links, and our version. For rank 0 at init; thread-safe, and safe beside other processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/planner/imported_schedules.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Names the machine's folder in the cache.
std::string plan_key(const Machine& machine);

// Whether executors can run it: FIFOs may be too small.
using ScheduleTest = std::function<bool(const ImportedSchedule&)>;

struct MadeSchedules {
  std::shared_ptr<const ImportedSchedules> schedules;
  int fetched = 0, made = 0;  // how many came from the cache, and from the synthesizer
  int left = 0;               // not made for lack of time
  int cut_short = 0;          // of those there are; with more time there might be better ones
  double seconds = 0;
};

// Less than zero for WEFT_SYNTHESIS_SECONDS: as long as init may take.
double synthesis_seconds(const Config& config, const Machine& machine);
// With so much time searches are whole.
inline constexpr double kPatientSeconds = 1;

// For all GPUs of the machine; those for large arrays first, side by side on the cores there are,
// each with its share of `seconds`, those that are not begun by then not at all. For more than 32
// GPUs, unless there is more than a second, the first that can be made for large arrays: no
// search, so the same every time. Only schedules that serve calls in place and out of place, and
// that `fits` accepts. A file of the cache that cannot be used is a line in the log and made anew;
// a folder that cannot be written is one line.
MadeSchedules schedules_for(const Config& config, const Machine& machine, double seconds,
                            const ScheduleTest& fits);

}  // namespace weft
