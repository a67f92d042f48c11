// The configuration as the ranks of one communicator use it. Equal on all of them.
#pragma once

#include "src/base/config.h"

namespace weft {

// Whether GPUs of several hosts use several connections between two ranks.
bool uses_multi_connection(const Config& config, int nranks);

// What NCCL_PROTO and NCCL_MAX_NCHANNELS mean here, and what GPUs need.
Config rank_config(Config config, int nranks);

}  // namespace weft
