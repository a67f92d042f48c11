// Schedules whose partial sums travel as float, so that sums of 16-bit floats are rounded once.
#pragma once

#include <optional>

#include "src/schedule/verify.h"

namespace weft {

// Whether a step of a reduction makes a sum of some ranks only. Values of 16 bits are rounded
// there.
bool has_partial_sums(const VerifiedSchedule& schedule);

// The schedule with the codec `widen` on every message that carries a partial sum. nullopt: a rank
// keeps a partial sum in memory, where it has the call's type, or the schedule has codecs already.
std::optional<Schedule> widened(const VerifiedSchedule& schedule);

}  // namespace weft
