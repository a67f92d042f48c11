// Schedules as files: MSCCL XML (both dialects) and Weft's own JSON, told apart by their content.
// Functions only, callable from any thread. Everything that is wrong with a file becomes
// Error(ncclInvalidUsage) in one line with file, line and element, ncclInvalidArgument where only
// the collective's name is missing; a file that cannot be read becomes Error(ncclSystemError).
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

// A schedule, and for which calls its author made it.
struct ScheduleFile {
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  Schedule schedule;
  std::string protocol = "Simple";  // Simple, LL or LL128: what MSCCL's runtimes would send with
  // Sizes it is for, both included, as nccl-tests counts: bytes of the whole array.
  uint64_t min_bytes = 0, max_bytes = kNoLimit;
  // In-place and out-of-place calls it is for. Files that do not say (modes_declared false) are for
  // those that verify() accepts.
  bool in_place = true, out_of_place = true, modes_declared = false;
  bool operator==(const ScheduleFile&) const = default;
};

// Largest file that is read, so that what a parser allocates stays bounded.
inline constexpr uint64_t kMostScheduleBytes = uint64_t{256} << 20;

// Reads a file. `collective` is what the user says it is: needed where the file does not say (old
// MSCCL XML, coll="custom"), and must agree with it where it does.
ScheduleFile load_schedule(const std::filesystem::path& path,
                           std::optional<CollectiveKind> collective = std::nullopt);
// The same from memory; `source` is how errors call it.
ScheduleFile parse_schedule(std::string_view text, const std::string& source,
                            std::optional<CollectiveKind> collective = std::nullopt);
// Writes JSON, or MSCCL XML (Azure's dialect) where the name ends in .xml. Nothing is written when
// that cannot be done.
void save_schedule(const ScheduleFile& file, const std::filesystem::path& path);

// The proofs of a file, one per mode it is for; nullptr for a mode it is not for.
struct ProvedFile {
  std::shared_ptr<const VerifiedSchedule> in_place, out_of_place;
};
// Throws when a declared mode is refused, or, where none is declared, both are.
ProvedFile prove(const ScheduleFile& file, int fifo_depth);

}  // namespace weft
