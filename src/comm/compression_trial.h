// WEFT_COMPRESS=auto: ranks time calls as they are and compressed, and all use what rank 0 decides
// by these times (compression_scope.h).
#pragma once

#include "src/comm/communicator.h"
#include "src/planner/compression.h"

namespace weft {

// The parts of a communicator. `places`: of all ranks.
struct CompressionTrial {
  Communicator& ranks;
  const Config& config;
  PlanChooser& chooser;
  ControlChannel& control;
  const CompressionSettings& settings;
  const RankHomes& places;

  // Collective; the same on all ranks. Afterwards nothing is compressed. Throws Error.
  CompressionScopes run(Deadline deadline) const;

 private:
  CompressionTimes times_of(CollectiveKind kind, Deadline deadline) const;
};

}  // namespace weft
