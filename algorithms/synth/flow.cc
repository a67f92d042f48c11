// See flow.h.
#include "algorithms/synth/flow.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "algorithms/bounds/bounds.h"
#include "algorithms/synth/flow_paths.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kChunkCounts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
constexpr double kMessageBytes = 65536;  // what order is worked out with

struct Demands {
  std::vector<Demand> list;
  std::vector<int32_t> block;
};

Demands demands_of(const Collective& collective) {
  Demands demands;
  const int n = collective.nranks;
  const auto add = [&](int from, int to, int block) {
    demands.list.push_back({from, to});
    demands.block.push_back(block);
  };
  for (int r = 0; r < n; r++) {
    if (collective.kind == CollectiveKind::kAllToAll) {
      // From each rank on, so that not everybody sends to the same one first.
      for (int k = 1; k < n; k++) add(r, (r + k) % n, r * n + (r + k) % n);
    } else if (r != collective.root) {
      if (collective.kind == CollectiveKind::kGather)
        add(r, collective.root, r);
      else
        add(collective.root, r, r);
    }
  }
  return demands;
}

// Gives every hop of every chunk its time: links serve what comes first, and of what comes at the
// same time that which has farthest to go.
std::vector<Transfer> in_order(const HopGraph& graph, const Demands& demands,
                               const PathAssignment& assignment) {
  // Ready, hops behind it, round of demands, chunk, hop: the order of service.
  using Entry = std::tuple<double, int, size_t, size_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  std::vector<double> free_us(graph.gbps.size(), 0.0);
  const int n = graph.ranks;
  for (size_t p = 0; p < assignment.paths.size(); p++) {
    const Demand& d = demands.list[p / assignment.chunks];
    const auto round = static_cast<size_t>((d.to - d.from + n) % n + p % assignment.chunks * n);
    ready.push({0.0, -static_cast<int>(assignment.paths[p].size()), round, p, 0});
  }
  std::vector<Transfer> transfers;
  while (!ready.empty()) {
    const auto [at, behind, round, p, step] = ready.top();
    ready.pop();
    const Hop& hop = graph.hops[assignment.paths[p][step]];
    double begin = -1, head = at, tail = at;
    for (const int32_t l : hop.links) {
      head = std::max(head, free_us[l]);
      if (begin < 0) begin = head;
      const double busy = kMessageBytes * 1e-3 / graph.gbps[l];
      free_us[l] = head + busy;
      tail = std::max(tail, free_us[l]) + graph.us[l];
      head += graph.us[l];
    }
    const int32_t piece = demands.block[p / assignment.chunks] * assignment.chunks +
                          static_cast<int32_t>(p % assignment.chunks);
    transfers.push_back({piece, hop.from, hop.to, hop.links, begin});
    if (step + 1 < assignment.paths[p].size()) ready.push({tail, behind + 1, round, p, step + 1});
  }
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.begin_us < b.begin_us; });
  return transfers;
}

}  // namespace

Routing route_flow(const Machine& machine, const Collective& collective,
                   const FlowOptions& options) {
  if (collective.kind != CollectiveKind::kAllToAll && collective.kind != CollectiveKind::kGather &&
      collective.kind != CollectiveKind::kScatter)
    fail(ncclInvalidArgument, "the flow engine routes alltoall, gather and scatter, not {}",
         name(collective.kind));
  HopGraph graph = hop_graph(machine, collective.nranks);
  add_spare_hops(graph, machine);
  const Demands demands = demands_of(collective);
  Routing routing{collective, 1, {}, {}};
  if (demands.list.empty()) return routing;
  PathAssignment best;
  double least = 0;  // for one chunk per demand
  int64_t effort = options.effort;
  for (const int chunks : kChunkCounts) {
    if (chunks > options.most_chunks || effort <= 0) break;
    PathAssignment next = assign_paths(graph, demands.list, chunks, least, effort);
    least = std::max(least, next.least / chunks);
    if (best.paths.empty() || next.load / chunks < best.load / best.chunks * (1 - 1e-3))
      best = std::move(next);
    best.least = least * best.chunks;
    if (best.loss() <= options.loss) break;
  }
  routing.chunks = best.chunks;
  routing.transfers = in_order(graph, demands, best);
  return routing;
}

}  // namespace weft
