// Refuses flags that the number of ranks, the collective or the file system does not allow.
#pragma once

#include "perf/common/options.h"
#include "perf/common/process.h"

namespace weft::perf {

// Throws UsageError before anything is printed or allocated.
void check_feasible(const Process& process, const Options& options);

}  // namespace weft::perf
