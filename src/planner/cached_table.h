// A selection table of simulated times in the cache folder. Simulating costs takes longer than
// reading them. Executors do what a table says, so every option of a file is checked. For rank 0 at
// init.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/planner/table_builder.h"

namespace weft {

// The collective of a schedule that an option names; nullopt: there is no such schedule.
using ScheduleKinds = std::function<std::optional<CollectiveKind>(const PlanOption&)>;

class CachedTable {
 public:
  // `schedules`: a fingerprint of those that compete. The request must outlive this.
  CachedTable(const Config& config, const TableRequest& request, uint64_t schedules);

  bool exists() const;
  // Throws Error if it is damaged or has an option that cannot run.
  SelectionTable read(const ScheduleKinds& kinds) const;
  // Reads it, or builds it and puts it there. Its options refer to the request's schedules.
  SelectionTable get() const;

 private:
  const TableRequest& request_;
  std::string path_;  // empty: there is no cache
};

}  // namespace weft
