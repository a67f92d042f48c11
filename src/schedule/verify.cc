// Puts the proofs together: structure, symbolic execution, ordering.
#include "src/schedule/verify.h"

#include "src/base/error.h"
#include "src/schedule/ordering.h"
#include "src/schedule/symbolic.h"

namespace weft {

VerifiedSchedule verify(Schedule schedule, bool in_place, int fifo_depth) {
  VerifiedSchedule verified;
  verified.schedule_ = std::move(schedule);
  verified.in_place_ = in_place;
  verified.fifo_depth_ = fifo_depth;
  const Schedule& s = verified.schedule_;
  try {
    const ScheduleGraph graph(s, in_place);
    SymbolicResult result = execute_symbolically(graph, fifo_depth);
    check_ordering(graph, result);
    verified.uniform_only_ = result.uniform_only;
    size_t n = 0;
    for (const RankSchedule& rank : s.ranks) {
      auto& lanes = verified.facts_.emplace_back();
      for (const Lane& lane : rank.lanes) {
        lanes.emplace_back(
            result.facts.begin() + static_cast<std::ptrdiff_t>(n),
            result.facts.begin() + static_cast<std::ptrdiff_t>(n + lane.steps.size()));
        n += lane.steps.size();
      }
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("schedule '{}' ({}, {} ranks, {}) refused: {}", s.name,
                                          name(s.collective.kind), s.collective.nranks,
                                          in_place ? "in place" : "out of place", error.what()));
  }
  return verified;
}

}  // namespace weft
