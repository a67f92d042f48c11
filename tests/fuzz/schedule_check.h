// The checks that fuzz targets make on a schedule file that a reader has accepted.
#pragma once

#include "src/schedule/schedule_file.h"

namespace weft::fuzz {

// Writes the file in both formats, reads it back and proves it. Ends the process if the file
// changes on the way. A refusal (weft::Error) is fine.
void check(const ScheduleFile& file);

// Proves it, if that does not take long.
void prove_if_cheap(const ScheduleFile& file);

}  // namespace weft::fuzz
