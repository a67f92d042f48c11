// Schedules as files: MSCCL XML (both dialects) and Weft's own JSON. The content tells which.
// Functions only, callable from any thread. Errors in a file throw Error(ncclInvalidUsage), one
// line with file, line and element. If only the collective's name is missing, they throw
// ncclInvalidArgument. A file that cannot be read throws Error(ncclSystemError).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/schedule/schedule.h"
#include "src/schedule/verify.h"

namespace weft {

// A schedule, and the calls that its author made it for.
struct ScheduleFile {
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  Schedule schedule;
  std::string protocol = "Simple";  // Simple, LL or LL128: the protocol for MSCCL's runtimes
  // The sizes it is for, both included. As in nccl-tests, bytes of the whole array.
  uint64_t min_bytes = 0, max_bytes = kNoLimit;
  // Whether it is for in-place and out-of-place calls. If the file does not say (modes_declared
  // false), it is for the modes that verify() accepts.
  bool in_place = true, out_of_place = true, modes_declared = false;
  bool operator==(const ScheduleFile&) const = default;
};

// Larger files are refused, to bound the parsers' allocations.
inline constexpr uint64_t kMostScheduleBytes = uint64_t{256} << 20;

// Reads a file. `collective` is the kind that the user names. It is needed if the file names none
// (old MSCCL XML, coll="custom"). If the file names one, both must agree.
ScheduleFile load_schedule(const std::filesystem::path& path,
                           std::optional<CollectiveKind> collective = std::nullopt);
// Reads from memory; errors call the text `source`.
ScheduleFile parse_schedule(std::string_view text, const std::string& source,
                            std::optional<CollectiveKind> collective = std::nullopt);
// Writes JSON, or MSCCL XML (Azure's dialect) if the name ends in .xml. Writes nothing on error.
void save_schedule(const ScheduleFile& file, const std::filesystem::path& path);

// The proofs of a file, one per mode. nullptr: the file is not for this mode.
struct ProvedFile {
  std::shared_ptr<const VerifiedSchedule> in_place, out_of_place;
};
// Throws when verify() refuses a declared mode. If no mode is declared, throws when it refuses
// both.
ProvedFile prove(const ScheduleFile& file, int fifo_depth);
// The same for a schedule that was taken out of its file.
ProvedFile prove(const ScheduleFile& file, const std::shared_ptr<const Schedule>& schedule,
                 int fifo_depth);

}  // namespace weft
