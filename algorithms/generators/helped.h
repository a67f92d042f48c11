// An all_reduce of hosts with a rank each, and of hosts that only help: they sum, and have neither
// input nor output. They are the CPU nodes of the schedule (BytePS's summation servers).
#pragma once

#include "src/schedule/schedule.h"

namespace weft {

// The chunks that each rank and each helper sums. Every host then sends and receives equally much,
// unless helpers alone are too few to be as busy as ranks.
struct HelpedShares {
  int rank = 0, helper = 0, chunks = 0;
};
// At least two ranks, and 1 to `nranks` helpers: more would find nothing to do.
HelpedShares helped_shares(int nranks, int helpers);

// Works in place and out of place. One host sums a chunk for all, so all ranks get the same bits.
Schedule make_helped(int nranks, int helpers);

}  // namespace weft
