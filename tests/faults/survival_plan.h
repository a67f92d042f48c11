// A random run in which a rank is killed or stopped while kernels run, and the others go on without
// it. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <string>

#include "tests/faults/chaos_plan.h"
#include "tests/support/sampling.h"

namespace weft::test {

struct SurvivalPlan {
  static constexpr int kMostStreams = 3;
  static constexpr size_t kGraphs = 3;

  explicit SurvivalPlan(uint64_t from) : seed(from) {
    Random random(mix(seed, 29));
    ranks = static_cast<int>(2 + random.below(4));
    victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    stops = random.below(4) == 0;
    if (random.below(2) == 0) hosts = static_cast<HostLayout>(random.below(kLayouts));
    no_peer_access = random.below(3) == 0;
    streams = static_cast<int>(1 + random.below(kMostStreams));
    steps = static_cast<int>(8 + random.below(16));
    fault_step = static_cast<int>(random.below(static_cast<uint64_t>(steps)));
    delay_us = random.below(3) == 0 ? 0 : static_cast<int>(random.below(3000));
  }
  std::string describe() const {
    return "seed " + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, " +
           name_of(hosts) + (no_peer_access ? ", no peer access" : "") + ", " +
           std::to_string(streams) + " streams; rank " + std::to_string(victim) +
           (stops ? " is stopped for 1 s " : " is killed ") + std::to_string(delay_us) +
           " us after the launch of step " + std::to_string(fault_step) + " of " +
           std::to_string(steps);
  }

  uint64_t seed;
  int ranks = 2, victim = 0, streams = 1, steps = 8, fault_step = 0, delay_us = 0;
  bool stops = false, no_peer_access = false;
  HostLayout hosts = kOneHost;
};

}  // namespace weft::test
