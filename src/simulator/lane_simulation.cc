// See lane_simulation.h.
#include "src/simulator/lane_simulation.h"

#include <algorithm>

namespace weft {
namespace {

// With few ranks there is time to simulate many slices.
constexpr int kFewRanks = 16, kManyRanks = 32;
// Instances of a lane. With many ranks it may have more: they would take too long to simulate.
constexpr int kSimulatedInstances = 8, kFewSimulatedInstances = 4;
constexpr double kFewPasses = 12;

}  // namespace

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

SimulationOptions quick_lanes(SimulationOptions options, int nranks) {
  // Long chains are slow with few slices.
  if (nranks <= kFewRanks) {
    options.most_slices = 64;
    options.estimate = true;
  } else {
    options.most_slices = 1024;
    options.most_simulated = nranks <= kManyRanks ? 8 : 4;
  }
  return options;
}

Simulation simulate_lanes(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                          const LaneCut& cut, SimulationOptions options) {
  const Schedule& schedule = graph.schedule;
  const double chunk = block_bytes(schedule.collective, bytes) / schedule.chunks;
  options.slice_bytes = bytes_per_pass(cut, graph, chunk);
  options.step_us *= lanes_per_block(cut, schedule);
  options.message_us *= lanes_per_block(cut, schedule);
  // In few passes it is instances that work on several hops at a time. In many passes they hide
  // what steps cost beside their data, for which fewer are enough.
  const bool few_ranks = schedule.collective.nranks <= kFewRanks,
             few_passes = chunk < kFewPasses * options.slice_bytes;
  const int most = few_ranks && few_passes   ? kSimulatedInstances
                   : few_ranks || few_passes ? kFewSimulatedInstances
                                             : 1;
  const int instances = std::min(most, static_cast<int>(lane_instances(cut, schedule, chunk)));
  const auto run = instances > 1 ? with_instances(schedule, instances) : std::nullopt;
  if (!run) return simulate(machine, graph, bytes, options);
  options.slice_bytes /= instances;
  return simulate(machine, step_graph(*run), bytes, options);
}

}  // namespace weft
