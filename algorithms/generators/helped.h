// An all_reduce of hosts with a rank each, and of hosts that only help: they sum, and have neither
// input nor output. They are the CPU nodes of the schedule (BytePS's summation servers).
#pragma once

#include "src/schedule/schedule.h"

namespace weft {

// The parts of every share, each with lanes and channels of its own. A rank sends the next slice of
// a part only when it has the sum of the last one. So no stream runs ahead of those that the same
// sum needs: TCP does not divide a link evenly, and sums would wait for the slowest stream.
inline constexpr int kHelpedParts = 4;
inline constexpr int kHelpedChannels = 2 * kHelpedParts;

// The chunks of each part that each rank and each helper sums. Every host then sends and receives
// equally much.
struct HelpedShares {
  int rank = 0, helper = 0, chunks = 0;
};
// At least two ranks, and 1 to `nranks` helpers: more would find nothing to do.
HelpedShares helped_shares(int nranks, int helpers);

// Works in place and out of place. One host sums a chunk for all, so all ranks get the same bits.
// `spec`: the codec of all messages; of no kind: they are plain. Ranks encode their inputs, and
// whoever sums a chunk decodes, sums and encodes it once (HiPress).
Schedule make_helped(int nranks, int helpers, const CodecSpec& spec = {});

}  // namespace weft
