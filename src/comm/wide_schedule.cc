// See wide_schedule.h.
#include "src/comm/wide_schedule.h"

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/widened.h"
#include "src/base/error.h"
#include "src/planner/proved_schedules.h"

namespace weft {

bool rounds_sums(const PlanCall& asked, const Call& call) {
  return asked.collective.reduces() && asked.numbers == PlanCall::Numbers::kFloatSums &&
         call.reduction.type != ncclFloat32;
}

WideSchedule wide_schedule(const VerifiedSchedule& plan, const Collective& collective,
                           int fifo_depth) {
  if (!has_partial_sums(plan) || !plan.schedule().codecs.empty()) return {};
  const bool in_place = plan.in_place();
  WideSchedule made;
  std::optional<Schedule> wide = widened(plan);
  if (!wide) {
    wide = widened(*ProvedSchedules::instance().get(kRing, collective, in_place));
    made.ring = true;
  }
  if (!wide)
    fail(ncclInternalError, "{} has no plan that passes sums on as float", name(collective.kind));
  made.schedule =
      std::make_shared<const VerifiedSchedule>(verify(std::move(*wide), in_place, fifo_depth));
  return made;
}

}  // namespace weft
