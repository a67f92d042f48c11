// What both fuzz targets do with a schedule file that a reader has accepted.
#pragma once

#include "src/schedule/schedule_file.h"

namespace weft::fuzz {

// Writes the file in both forms, reads it back and proves it. Ends the process where a file does
// not come back as it went out; refusals (weft::Error) are as good an answer as any.
void check(const ScheduleFile& file);

}  // namespace weft::fuzz
