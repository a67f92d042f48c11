// WEFT_COMPRESS=auto: ranks time calls as they are and compressed, and all use what rank 0 decides
// by these times (compression_scope.h).
#pragma once

#include <array>
#include <memory>

#include "src/comm/communicator.h"
#include "src/comm/trial.h"
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

  // By CodedLinks; nullptr: not tried, or, for kNone, as calls are.
  using Ways = std::array<std::shared_ptr<const CompressedPlans>, kCodedLinks>;

  // Collective; the same on all ranks. Afterwards nothing is compressed. Throws Error.
  CompressionScopes run(Deadline deadline) const;

 private:
  Ways ways() const;
  CompressionTimes times_of(CollectiveKind kind, const Ways& ways, Trial& trial,
                            Deadline deadline) const;
};

}  // namespace weft
