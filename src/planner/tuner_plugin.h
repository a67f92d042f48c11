// Tuner plugins of NCCL's ABI (versions 2 to 6): they may prefer an algorithm for a collective and
// a size. Rank 0 asks at init, for sizes a factor of two apart, and the answers become ranges of
// the selection table.
#pragma once

#include "src/base/config.h"
#include "src/planner/selection_table.h"

namespace weft {

// Looked for by NCCL's rules: NCCL_TUNER_PLUGIN, or libnccl-tuner.so where that is not set. Without
// a plugin, or with one that fails (a line in the log), the table stays as it is.
void ask_tuner(const Config& config, int nranks, int hosts, uint64_t communicator,
               SelectionTable& table);

}  // namespace weft
