// See lane_cut.h.
#include "src/simulator/lane_cut.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

constexpr double kLeastMessage = 8192;  // before another instance of a lane pays
constexpr double kLeastSlice = 1024;

double lanes_of(const Schedule& schedule) {
  size_t lanes = 1;
  for (const RankSchedule& rank : schedule.ranks) lanes = std::max(lanes, rank.lanes.size());
  return static_cast<double>(lanes);
}

}  // namespace

LaneCut usual_cut(bool several_hosts) {
  LaneCut cut;
  if (several_hosts) {
    cut.pool_bytes /= 2;
    cut.shared_pool = false;
  }
  return cut;
}

double lane_instances(const LaneCut& cut, const Schedule& schedule, double chunk_bytes) {
  return std::clamp(chunk_bytes / kLeastMessage, 1.0,
                    std::max(1.0, cut.blocks / lanes_of(schedule)));
}

double lanes_per_block(const LaneCut& cut, const Schedule& schedule) {
  return std::max(1.0, lanes_of(schedule) / cut.blocks);
}

double bytes_per_pass(const LaneCut& cut, const ScheduleGraph& graph, double chunk_bytes) {
  std::vector<double> ports(graph.schedule.ranks.size(), 0);
  double chunks = 1;  // in a message
  for (const ScheduleGraph::Fifo& fifo : graph.fifos) {
    ports[static_cast<size_t>(fifo.destination)]++;
    chunks = std::max<double>(chunks, fifo.most_chunks);
  }
  bool scratch = false;
  for (const RankSchedule& rank : graph.schedule.ranks)
    scratch = scratch || rank.scratch_chunks > 0;
  const double pool = scratch && cut.shared_pool ? cut.pool_bytes / 2 : cut.pool_bytes;
  const double most_ports = std::max(1.0, *std::max_element(ports.begin(), ports.end()));
  const double instances = lane_instances(cut, graph.schedule, chunk_bytes);
  const double fifo = std::min(cut.fifo_bytes, pool / (most_ports * instances));
  return std::max(kLeastSlice, fifo / cut.slots / chunks) * instances;
}

}  // namespace weft
