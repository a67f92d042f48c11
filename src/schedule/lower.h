// lower(): from a proved schedule to the Program of one rank.
#pragma once

#include "src/schedule/program.h"
#include "src/schedule/verify.h"

namespace weft {

Program lower(const VerifiedSchedule& verified, int rank);

}  // namespace weft
