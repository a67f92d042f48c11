// Tuner plugins of NCCL's ABI (versions 2 to 6). A plugin may prefer an algorithm for a collective
// and a size. Rank 0 asks at init, for sizes a factor of two apart. The answers become ranges of
// the selection table.
#pragma once

#include "src/base/config.h"
#include "src/planner/selection_table.h"

namespace weft {

// Finds the plugin by NCCL's rules: NCCL_TUNER_PLUGIN, or libnccl-tuner.so if that is not set.
// Without a plugin the table stays as it is. If a plugin fails, it stays too, and a log line says
// so.
void ask_tuner(const Config& config, int nranks, int hosts, uint64_t communicator,
               SelectionTable& table);

}  // namespace weft
