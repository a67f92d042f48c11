// See points.h.
#include "algorithms/synth/latency/points.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "algorithms/bounds/bounds.h"
#include "algorithms/synth/latency/steps.h"
#include "src/base/error.h"

namespace weft {
namespace {

// Chunks per round and hop; the slowest link carries one.
std::vector<int> widths(const HopGraph& graph, const Machine& machine) {
  std::vector<int> users(graph.gbps.size(), 0);
  double least = graph.hops.empty() ? 1 : graph.hops[0].gbps;
  for (const Hop& hop : graph.hops) {
    least = std::min(least, hop.gbps);
    for (const int32_t l : hop.links)
      if (++users[l] > 1)
        fail(ncclInvalidArgument,
             "{}: steps and rounds need links of their own between GPUs, but several ways share "
             "{}->{}",
             machine.name.empty() ? "the machine" : machine.name,
             machine.nodes[machine.links[l].from].id, machine.nodes[machine.links[l].to].id);
  }
  std::vector<int> width;
  for (const Hop& hop : graph.hops)
    width.push_back(static_cast<int>(std::floor(hop.gbps / least + 1e-9)));
  return width;
}

// The number of hops from a piece's origin to the farthest rank.
int eccentricity(const HopGraph& graph, const std::vector<int32_t>& origins) {
  int most = 0;
  for (const int32_t origin : origins) {
    std::vector<int> away(graph.ranks, -1);
    std::vector<int> queue = {origin};
    away[origin] = 0;
    for (size_t next = 0; next < queue.size(); next++)
      for (const int32_t h : graph.leaving[queue[next]])
        if (away[graph.hops[h].to] < 0) {
          away[graph.hops[h].to] = away[queue[next]] + 1;
          queue.push_back(graph.hops[h].to);
        }
    most = std::max(most, away[queue.back()]);
  }
  return most;
}

struct Ratio {
  int rounds = 0, chunks = 0;
  double value() const { return static_cast<double>(rounds) / chunks; }
};

// All ratios of rounds per chunk, the lowest first.
std::vector<Ratio> ratios(double least, double below, int steps, int most_chunks) {
  std::vector<Ratio> all;
  for (int chunks = 1; chunks <= most_chunks; chunks++)
    for (int rounds = std::max(steps, static_cast<int>(std::ceil(least * chunks - 1e-9)));
         rounds < below * chunks - 1e-9; rounds++)
      all.push_back({rounds, chunks});
  std::stable_sort(all.begin(), all.end(),
                   [](const Ratio& a, const Ratio& b) { return a.value() < b.value() - 1e-12; });
  return all;
}

}  // namespace

std::vector<ParetoPoint> latency_points(const Machine& machine, const Collective& collective,
                                        const PointOptions& options) {
  const CollectiveKind kind = collective.kind;
  const bool rooted = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
  if (!rooted && kind != CollectiveKind::kAllGather && kind != CollectiveKind::kReduceScatter)
    fail(ncclInvalidArgument, "no steps and rounds are searched for {}", name(kind));
  const int n = collective.nranks;
  const HopGraph graph = hop_graph(machine, n, collective.reduces());
  std::vector<ParetoPoint> points;
  if (n == 1) return points;
  StepProblem problem{graph, widths(graph, machine), {}};
  std::vector<int32_t> origins;
  for (int r = 0; r < n; r++)
    if (!rooted || r == collective.root) origins.push_back(r);
  double unit = graph.hops[0].gbps;
  for (const Hop& hop : graph.hops) unit = std::min(unit, hop.gbps);
  const double blocks = rooted ? 1 : n;
  const double least = blocks * unit / throughput_bound(machine, collective).algbw_gbps;
  double below = 1e9;
  const int fewest = eccentricity(graph, origins);
  for (int steps = fewest; steps <= std::max(fewest, options.most_steps); steps++) {
    const double cap = below > 1e8 ? least * 8 + n : below;
    for (const Ratio& ratio : ratios(least, cap, steps, options.most_chunks)) {
      problem.origin.clear();
      for (const int32_t origin : origins)
        problem.origin.insert(problem.origin.end(), ratio.chunks, origin);
      const auto found = find_steps(problem, steps, ratio.rounds);
      if (!found) continue;
      ParetoPoint point{steps, ratio.rounds, ratio.chunks, {collective, ratio.chunks, {}, {}}};
      for (const StepSend& send : *found) {
        const Hop& hop = graph.hops[send.hop];
        point.routing.transfers.push_back(
            {send.piece, hop.from, hop.to, hop.links, static_cast<double>(send.step)});
      }
      points.push_back(std::move(point));
      below = ratio.value();
      break;
    }
    if (below <= least + 1e-9) break;
  }
  return points;
}

}  // namespace weft
