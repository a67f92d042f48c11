// See entrants.h.
#include "perf/regret/entrants.h"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/generators/generators.h"
#include "include/weft.h"

namespace weft::perf {

std::vector<Entrant> entrants_for(CollectiveKind kind, int ranks) {
  std::vector<Entrant> list(1);
  std::vector<Schedule> schedules(1);
  for (const Generator& generator : generators()) {
    // Those are for several hosts.
    if (generator.channels > kUsualChannels || generator.between_hosts) continue;
    const Collective collective{kind, ranks, 0};
    if (!generator.supports(collective) || (generator.peer_memory && weftHostMode() == 1)) continue;
    Schedule schedule = generator.make(collective, false);
    schedule.name.clear();
    const auto same = std::find(schedules.begin() + 1, schedules.end(), schedule);
    if (same != schedules.end()) {
      list[static_cast<size_t>(same - schedules.begin())].twins +=
          fmt::format(" {}", generator.name);
      continue;
    }
    Entrant& entrant = list.emplace_back();
    entrant.plan = generator.name;
    entrant.twins = fmt::format(" {}", generator.name);
    schedules.push_back(std::move(schedule));
  }
  return list;
}

}  // namespace weft::perf
