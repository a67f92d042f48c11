// See lane_instances.h.
#include "src/planner/lane_instances.h"

namespace weft {

std::optional<Schedule> with_instances(const Schedule& schedule, int instances) {
  Schedule all = schedule;
  all.chunks *= instances;
  all.routes.clear();
  for (const RouteHint& hint : schedule.routes)
    for (int i = 0; i < instances; i++) {
      all.routes.push_back(hint);
      all.routes.back().channel = static_cast<int16_t>(hint.channel * instances + i);
    }
  const int chunks = schedule.chunks;
  for (size_t r = 0; r < all.ranks.size(); r++) {
    const RankSchedule& rank = schedule.ranks[r];
    const auto lanes = static_cast<int>(rank.lanes.size());
    all.ranks[r].lanes.clear();
    all.ranks[r].scratch_chunks *= instances;
    for (int i = 0; i < instances; i++)
      for (Lane lane : rank.lanes) {
        for (Step& step : lane.steps) {
          for (Dependency& d : step.after) d.lane += i * lanes;
          for (auto* operands : {&step.from, &step.to})
            for (Operand& o : *operands) {
              if (o.kind == Operand::Kind::kPeer) {
                o.channel = static_cast<int16_t>(o.channel * instances + i);
              } else if (o.kind == Operand::Kind::kRemote) {
                return std::nullopt;
              } else if (o.buffer == Buffer::kScratch) {
                o.index += i * rank.scratch_chunks;
              } else {
                if (o.index % chunks + step.count > chunks) return std::nullopt;
                o.index = o.index / chunks * chunks * instances + i * chunks + o.index % chunks;
              }
            }
        }
        all.ranks[r].lanes.push_back(std::move(lane));
      }
  }
  return all;
}

}  // namespace weft
