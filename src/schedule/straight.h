// Messages that may go straight into the receiver's memory, without a FIFO slot: the sender writes
// them when its step S runs, before the receiver's step R.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/verify.h"

namespace weft {

struct StraightPlace {
  Buffer buffer = Buffer::kOutput;  // or kScratch
  int32_t index = -1;               // first chunk; -1: none, the message goes through the FIFO
  bool operator==(const StraightPlace&) const = default;
};

// One per operand of a rank's steps, in the order of Program::operands. For a destination that is a
// FIFO: where in the receiver's memory the sender may write the data. For a source that is a FIFO:
// where in this rank's memory the sender has written it. Both ends of a message get the same place.
//
// A message is straight if R does nothing but copy it, and output or scratch is among its
// destinations. Every other access to these chunks, by any rank, must be complete before S begins,
// or begin after R. Only dependencies and the order of lanes put a step of R's rank after R, not
// messages. R still has to copy the data from there to its other destinations.
//
// Executors must see to the rest:
// - S may run before the receiver is in the call, when its caller still uses the output. So the
//   sender must first hear from the receiver, for example its addresses in this call.
// - The proof is of one run of the steps. Executors that repeat them over slices need other
//   scratch memory for every slice.
// - No step may lend (VerifiedSchedule::lendable). That proof counts on writes when R runs.
//
// Takes 0.01 to 1 ms for 8 to 16 ranks and about 50 ms for the largest. Larger schedules have no
// straight messages: those of more than 2^18 steps, or whose steps times lanes (of the rank that
// has most) exceed 2^23. If ranks reach into peer memory, that is steps times lanes times ranks.
std::vector<StraightPlace> straight_places(const VerifiedSchedule& verified, int rank);

}  // namespace weft
