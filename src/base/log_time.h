// Time stamps of log lines: NCCL_DEBUG_TIMESTAMP_LEVELS and NCCL_DEBUG_TIMESTAMP_FORMAT.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace weft::log {

// A bit (1 << level) per level that has stamps. "WARN,INFO", "ALL", or "^TRACE": all but that one.
uint32_t stamped_levels(const std::string& text);

// As strftime() has it, with two additions of NCCL's: %3f is the part of the second in 3 digits (1
// to 9), and '_' is a space.
std::string stamp(const std::string& format, const timespec& time);

// "23:59:59.123 UTC", of a moment so many seconds ago.
std::string utc_time(double seconds_ago);

}  // namespace weft::log
