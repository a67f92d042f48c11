// See fit_own_gpus.h.
#include "src/planner/fit_own_gpus.h"

#include <algorithm>
#include <vector>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr double kStepShare = 0.6, kMessageShare = 0.2;  // of a hop, twice a message
constexpr double kLeastUs = 0.01;                        // clocks are not exact

}  // namespace

// A ring takes (call + step) + (ranks - 1) (way + step + 2 message). The line through the teams'
// times, less their ways, has that slope and begin.
Rates fit_own_gpus(std::span<const OwnGpuTimes> teams, const Rates& start) {
  if (teams.empty()) fail(ncclInvalidUsage, "no GPUs were measured");
  const auto hops = [](const OwnGpuTimes& team) { return static_cast<double>(team.ranks - 1); };
  const auto time = [&](const OwnGpuTimes& team) {
    return team.ring_us - hops(team) * team.way_us;
  };
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
  Rates rates = start;
  double hop = 0;
  if (xx > 0) {
    hop = xy / xx;
    if (hop <= 0)
      fail(ncclSystemError,
           "more GPUs take no longer (a hop of {:.2f} us): is something else running there?", hop);
    rates.call_us = std::max(kLeastUs, y - x * hop - kStepShare * hop);
  } else {
    hop = std::max(kLeastUs, (y - rates.call_us) / (x + kStepShare));
  }
  rates.step_us = kStepShare * hop;
  rates.message_us = kMessageShare * hop;
  std::vector<double> rounds;
  for (const OwnGpuTimes& team : teams)
    rounds.push_back(team.packets_us - rates.call_us - team.way_us);
  std::sort(rounds.begin(), rounds.end());
  rates.hop_us = std::max(kLeastUs, rounds[rounds.size() / 2]);
  return rates;
}

}  // namespace weft
