// See rank_config.h.
#include "src/comm/rank_config.h"

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/planner/tuning_rules.h"

namespace weft {

bool uses_multi_connection(const Config& config, int nranks, bool on_gpus) {
  return on_gpus && kMultiConnection.supports({CollectiveKind::kAllReduce, nranks, 0}) &&
         (config.max_channels <= 0 || config.max_channels >= kMultiConnection.channels);
}

Config rank_config(Config config, int nranks, bool on_gpus) {
  TuningRules rules;
  try {
    rules = TuningRules::from(config);
  } catch (const Error&) {
    return config;  // planning on rank 0 throws the same error, on all ranks
  }
  const auto allows = [&](NcclProtocol protocol) {
    return rules.protocols.allows(CollectiveKind::kAllReduce, static_cast<int>(protocol));
  };
  // On GPUs packets stand for both LL and LL128.
  if (!allows(NcclProtocol::kLl) && !allows(NcclProtocol::kLl128)) config.packet_bytes = 0;
  if (uses_multi_connection(config, nranks, on_gpus)) {
    config.net_ring_bytes = config.gpu_net_ring_bytes;
    config.net_slice_bytes = config.gpu_net_slice_bytes;
  }
  if (config.max_channels > 0 && (config.max_ctas <= 0 || config.max_ctas > config.max_channels))
    config.max_ctas = config.max_channels;
  return config;
}

}  // namespace weft
