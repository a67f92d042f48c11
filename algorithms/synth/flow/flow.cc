// See flow.h.
#include "algorithms/synth/flow/flow.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "algorithms/bounds/bounds.h"
#include "algorithms/synth/flow/even.h"
#include "algorithms/synth/flow/flow_paths.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kChunkCounts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
constexpr double kMessageBytes = 65536;  // assumed for the order

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
      // Starts after each rank, so that ranks do not all send to the same one first.
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

// Chunks of one demand that take the same path and travel together.
struct Convoy {
  size_t demand = 0;
  int first = 0, count = 1;   // chunks
  std::vector<int32_t> path;  // links
};

std::vector<Convoy> convoys_of(PathAssignment assignment, size_t demands) {
  std::vector<Convoy> convoys;
  for (size_t d = 0; d < demands; d++) {
    const auto begin = assignment.paths.begin() + static_cast<ptrdiff_t>(d * assignment.chunks);
    std::sort(begin, begin + assignment.chunks);
    for (int c = 0; c < assignment.chunks; c++) {
      if (c > 0 && begin[c] == begin[c - 1])
        convoys.back().count++;
      else
        convoys.push_back({d, c, 1, begin[c]});
    }
  }
  return convoys;
}

// Sets the time of every hop of every chunk. Links serve in order of arrival; ties go to the chunk
// with the longest way to go.
std::vector<Transfer> in_order(const FlowNetwork& network, const Demands& demands, int chunks,
                               const std::vector<Convoy>& convoys) {
  // The order of service: ready time, links to go, round of demands, convoy, link.
  using Entry = std::tuple<double, int, int, size_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  std::vector<double> free_us(network.links.size(), 0.0);
  const int n = network.ranks;
  for (size_t i = 0; i < convoys.size(); i++) {
    const Demand& d = demands.list[convoys[i].demand];
    const int round = (d.to - d.from + n) % n + convoys[i].first * n;
    ready.push({0.0, -static_cast<int>(convoys[i].path.size()), round, i, 0});
  }
  std::vector<Transfer> transfers;
  while (!ready.empty()) {
    const auto [at, behind, round, i, first] = ready.top();
    ready.pop();
    const Convoy& convoy = convoys[i];
    // Up to the next rank.
    Transfer hop{0, network.links[convoy.path[first]].from, 0, {}, -1};
    double head = at, tail = at;
    size_t next = first;
    do {
      const int32_t l = convoy.path[next++];
      const Link& link = network.links[l];
      head = std::max(head, free_us[l]);
      if (hop.begin_us < 0) hop.begin_us = head;
      free_us[l] = head + convoy.count * kMessageBytes * 1e-3 / link.gbps;
      tail = std::max(tail, free_us[l]) + link.us;
      head += link.us;
      hop.links.push_back(l);
      hop.to = link.to;
    } while (hop.to >= n);
    for (int c = convoy.first; c < convoy.first + convoy.count; c++) {
      hop.piece = demands.block[convoy.demand] * chunks + c;
      transfers.push_back(hop);
    }
    if (next < convoy.path.size())
      ready.push({tail, behind + static_cast<int>(next - first), round, i, next});
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
  const FlowNetwork network = flow_network(machine, collective.nranks);
  const Demands demands = demands_of(collective);
  Routing routing{collective, 1, {}, {}};
  if (demands.list.empty()) return routing;
  PathAssignment best;
  double least = 0;  // for one chunk per demand
  int64_t effort = options.effort;
  for (const int chunks : kChunkCounts) {
    const auto pieces = static_cast<int64_t>(demands.list.size()) * chunks;
    if (chunks > 1 && (chunks > options.most_chunks || pieces > options.most_pieces)) break;
    if (effort <= 0) break;
    PathAssignment next = assign_paths(network, demands.list, chunks, least, effort);
    least = std::max(least, next.least / chunks);
    if (best.paths.empty() || next.load / chunks < best.load / best.chunks * (1 - 1e-3))
      best = std::move(next);
    best.least = least * best.chunks;
    if (best.loss() <= options.loss) break;
  }
  routing.chunks = best.chunks;
  const std::vector<Convoy> convoys = convoys_of(std::move(best), demands.list.size());
  routing.transfers = in_order(network, demands, routing.chunks, convoys);
  return routing;
}

Routing spread_relays(const Machine& machine, const Routing& routing) {
  const FlowNetwork network = flow_network(machine, routing.collective.nranks);
  const Demands demands = demands_of(routing.collective);
  std::unordered_map<int32_t, size_t> demand_of;  // by block
  for (size_t d = 0; d < demands.block.size(); d++) demand_of[demands.block[d]] = d;
  PathAssignment assignment;
  assignment.chunks = routing.chunks;
  assignment.paths.resize(demands.list.size() * static_cast<size_t>(routing.chunks));
  // In order of time, so hop by hop.
  for (const Transfer& t : routing.transfers) {
    const size_t demand = demand_of.at(t.piece / routing.chunks);
    auto& path = assignment.paths[demand * static_cast<size_t>(routing.chunks) +
                                  static_cast<size_t>(t.piece % routing.chunks)];
    path.insert(path.end(), t.links.begin(), t.links.end());
  }
  even_hops(network, demands.list, assignment);
  Routing spread{routing.collective, routing.chunks, {}, {}};
  spread.transfers = in_order(network, demands, routing.chunks,
                              convoys_of(std::move(assignment), demands.list.size()));
  return spread;
}

}  // namespace weft
