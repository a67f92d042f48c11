// Weft's JSON form of a schedule. It holds everything that a Schedule can say, one step a line.
//
//   {"weft_schedule": 1, "name": "pair", "collective": "all_reduce", "ranks": 2, "chunks": 1,
//    "modes": ["in_place", "out_of_place"], "min_bytes": 0, "max_bytes": 65536, "parts": [
//     {"scratch": 0, "lanes": [[
//       {"from": [{"input": 0}], "to": [{"peer": 1}]},
//       {"from": [{"peer": 1}, {"input": 0}], "to": [{"output": 0}]}]]}, ...]}
//
// "weft_schedule" comes first and is the version. Optional keys and their defaults: "root" and
// "min_bytes" (0), "max_bytes" (no limit), "protocol" ("Simple"), "modes" (the modes that verify),
// "scratch" (0), "cpu_nodes" (0; their parts follow the ranks' parts), "routes" (hints: [{"from":
// 0, "to": 1, "channel": 0, "links": [...]}, ...]), "codecs" (none; as ["int8:block=256", ...]). Of
// a step: "from" and "to" (none), "count" (1) and "after" ([[lane, step], ...]). Of a peer:
// "channel" (0). A chunk of another rank's buffer also has a "rank". A coded operand has a "codec":
// 1 for the first of "codecs". Unknown and repeated keys are errors.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/schedule/schedule_file.h"

namespace weft {

inline constexpr int kScheduleJsonVersion = 1;

ScheduleFile read_schedule_json(std::string_view text, const std::string& source,
                                std::optional<CollectiveKind> collective = std::nullopt);
std::string write_schedule_json(const ScheduleFile& file);

}  // namespace weft
