// Times what a team of ranks takes for calls by every plan, for `weft calibrate`;
// interleaved_timing.h says how.
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
  bool processes = false;  // threads otherwise. Not for programs that have threads already.
  bool own_hosts = false;  // processes that talk over the network, as if each had a host
  bool bound = false;      // ranks stay on their cores; see interleaved_timing.h
  std::span<const CollectiveKind> collectives;
  std::span<const Generator* const> plans;
  std::span<const MeterPoint> points;  // small ones first
  double seconds = 1;                  // no size is begun after this long
};

struct PlanTime {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const Generator* plan = nullptr;
  uint64_t bytes = 0;
  double us = 0;
};

// Beyond this size only plans that were near the best at the size before are timed.
inline constexpr uint64_t kHopelessBytes = 4u << 20;

// Throws Error where a rank fails.
std::vector<PlanTime> time_plans(const MeterOrder& order);

}  // namespace weft
