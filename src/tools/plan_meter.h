// Times the calls of a team of ranks by every plan, for `weft calibrate`; interleaved_timing.h says
// how.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/generators/generators.h"
#include "src/schedule/collective.h"

namespace weft {

struct MeterPoint {
  uint64_t bytes = 0;
  int batches = 1;  // of calls timed together; the median counts
};

struct MeterOrder {
  int ranks = 2;
  bool processes = false;  // otherwise threads. Only for programs that have no threads yet.
  bool own_hosts = false;  // processes that talk over the network, as if each had its own host
  bool bound = false;      // ranks stay on their cores; see interleaved_timing.h
  std::span<const CollectiveKind> collectives;
  std::span<const Generator* const> plans;
  std::span<const MeterPoint> points;  // smallest first
  double seconds = 1;                  // no size begins after this time
  bool on_gpu = false;                 // fails without a GPU
};

struct PlanTime {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const Generator* plan = nullptr;
  uint64_t bytes = 0;
  double us = 0;
};

// Above this size only plans that were near the best at the previous size are timed.
inline constexpr uint64_t kHopelessBytes = 4u << 20;

// Throws Error if a rank fails.
std::vector<PlanTime> time_plans(const MeterOrder& order);

}  // namespace weft
