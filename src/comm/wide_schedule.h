// WEFT_ACCUMULATE=float: sums of 16-bit floats that are rounded once.
#pragma once

#include <memory>

#include "src/comm/call.h"
#include "src/planner/plan_chooser.h"
#include "src/schedule/verify.h"

namespace weft {

// Whether it is about the call. Plans that add all inputs in one step sum in float anyway.
bool rounds_sums(const PlanCall& asked, const Call& call);

struct WideSchedule {
  std::shared_ptr<const VerifiedSchedule> schedule;  // nullptr: the plan has no partial sums
  bool ring = false;                                 // a ring instead of the plan
};

// The plan with partial sums that travel as float. If it keeps some in memory, a ring of that kind.
WideSchedule wide_schedule(const VerifiedSchedule& plan, const Collective& collective,
                           int fifo_depth);

}  // namespace weft
