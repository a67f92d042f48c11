// See fit_own_gpus.h.
#include "src/planner/fit_own_gpus.h"

#include <algorithm>
#include <vector>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr double kStepShare = 0.6, kMessageShare = 0.2;  // of a hop, twice a message
constexpr double kLeastUs = 0.01;                        // clocks are not exact

struct Line {
  double begin = 0, slope = 0;  // begin: at no hop
};

// The line that comes nearest to the teams' times.
template <typename Time>
Line line_through(std::span<const OwnGpuTimes> teams, const Time& time) {
  const auto hops = [](const OwnGpuTimes& team) { return static_cast<double>(team.ranks - 1); };
  const auto n = static_cast<double>(teams.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const OwnGpuTimes& team : teams) {
    x += hops(team) / n;
    y += time(team) / n;
  }
  for (const OwnGpuTimes& team : teams) {
    xx += (hops(team) - x) * (hops(team) - x);
    xy += (hops(team) - x) * (time(team) - y);
  }
  return {y - x * xy / xx, xy / xx};
}

}  // namespace

Rates fit_own_gpus(std::span<const OwnGpuTimes> teams, const Rates& start) {
  if (teams.empty()) fail(ncclInvalidUsage, "no GPUs were measured");
  Rates rates = start;
  if (teams.size() > 1) {
    const Line ring = line_through(teams, [](const OwnGpuTimes& team) { return team.ring_us; });
    const double hop = ring.slope - teams.back().way_us;
    if (hop <= 0)
      fail(ncclSystemError,
           "more GPUs take no longer (a hop of {:.2f} us): is something else running there?", hop);
    rates.step_us = kStepShare * hop;
    rates.message_us = kMessageShare * hop;
    rates.call_us = std::max(kLeastUs, line_through(teams, [](const OwnGpuTimes& team) {
                                         return team.packets_us;
                                       }).begin);
    rates.lane_start_us = std::max(0.0, ring.begin - rates.call_us);
  }
  std::vector<double> rounds;
  for (const OwnGpuTimes& team : teams)
    rounds.push_back(team.packets_us - rates.call_us - team.way_us);
  std::sort(rounds.begin(), rounds.end());
  rates.hop_us = std::max(kLeastUs, rounds[rounds.size() / 2]);
  return rates;
}

}  // namespace weft
