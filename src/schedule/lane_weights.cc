// See lane_weights.h.
#include "src/schedule/lane_weights.h"

#include <algorithm>
#include <functional>

namespace weft {
namespace {

uint64_t weight_of(const Step& step) {
  const auto is_message = [](const Operand& o) { return o.kind == Operand::Kind::kPeer; };
  const bool received = step.from.size() == 1 && is_message(step.from.front()) &&
                        !std::all_of(step.to.begin(), step.to.end(), is_message);
  const size_t written = step.to.size() - (received ? 1 : 0);
  return written == 0 ? 0 : (step.from.size() + written) * static_cast<uint64_t>(step.count);
}

}  // namespace

std::vector<uint64_t> lane_weights(const RankSchedule& rank) {
  std::vector<uint64_t> weights;
  for (const Lane& lane : rank.lanes) {
    uint64_t weight = 0;
    for (const Step& step : lane.steps) weight += weight_of(step);
    weights.push_back(weight);
  }
  return weights;
}

std::vector<uint64_t> weights_of_heaviest(const Schedule& schedule) {
  std::vector<uint64_t> heaviest;
  for (size_t r = 0; r + static_cast<size_t>(schedule.cpu_nodes) < schedule.ranks.size(); r++) {
    std::vector<uint64_t> weights = lane_weights(schedule.ranks[r]);
    std::sort(weights.begin(), weights.end(), std::greater<>());
    if (weights.empty() || weights.front() == 0) continue;
    if (heaviest.empty() || weights.front() > heaviest.front()) heaviest = std::move(weights);
  }
  return heaviest;
}

}  // namespace weft
