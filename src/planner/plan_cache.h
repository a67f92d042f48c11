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
#include "src/topology/machine.h"

namespace weft {

// Names the machine's folder in the cache.
std::string plan_key(const Machine& machine);

// Whether executors can run it: FIFOs may be too small.
using ScheduleTest = std::function<bool(const ImportedSchedule&)>;

struct MadeSchedules {
  std::shared_ptr<const ImportedSchedules> schedules;
  int fetched = 0, made = 0;  // how many came from the cache, and from the synthesizer
  double seconds = 0;
};

// For all GPUs of the machine; those for large arrays first, as many as `seconds` allow. Only
// schedules that serve calls in place and out of place, and that `fits` accepts. A file of the
// cache that cannot be used is a line in the log and made anew; a folder that cannot be written is
// one line.
MadeSchedules schedules_for(const Config& config, const Machine& machine, double seconds,
                            const ScheduleTest& fits);

}  // namespace weft
