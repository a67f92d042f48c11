// The configuration as one communicator uses it.
#pragma once

#include "src/base/config.h"

namespace weft {

// Whether GPUs of several hosts use several connections between two ranks (kMultiConnection).
bool uses_multi_connection(const Config& config, int nranks, bool on_gpus);

// Applies NCCL_PROTO, NCCL_MAX_NCHANNELS and the sizes that GPUs need to `config`.
Config rank_config(Config config, int nranks, bool on_gpus);

}  // namespace weft
