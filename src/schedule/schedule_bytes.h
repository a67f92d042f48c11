// Schedules as bytes: what ranks send each other, and what the cache keeps. A seventh of the size
// of JSON, and many times as fast to read. Functions only, callable from any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/schedule/schedule_file.h"

namespace weft {

// How such bytes begin.
inline constexpr std::string_view kScheduleBytes = "weft bytes 1\n";

std::string write_schedule_bytes(const ScheduleFile& file);
// Any bytes may come. Throws Error(ncclInvalidUsage) that names `source` if they are not a
// schedule. What a schedule says is for verify() to judge.
ScheduleFile read_schedule_bytes(std::string_view bytes, const std::string& source);

}  // namespace weft
