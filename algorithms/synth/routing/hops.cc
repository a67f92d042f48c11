// See hops.h.
#include "algorithms/synth/routing/hops.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/routes.h"

namespace weft {
namespace {

void check_reach(const HopGraph& graph, const Machine& machine) {
  for (int source = 0; source < graph.ranks; source++) {
    std::vector<bool> reached(static_cast<size_t>(graph.ranks), false);
    std::vector<int> queue = {source};
    reached[source] = true;
    for (size_t next = 0; next < queue.size(); next++)
      for (const int32_t h : graph.leaving[queue[next]]) {
        const int to = graph.hops[h].to;
        if (reached[to]) continue;
        reached[to] = true;
        queue.push_back(to);
      }
    const auto lost = std::find(reached.begin(), reached.end(), false) - reached.begin();
    if (lost < graph.ranks) fail_unreachable(machine, source, static_cast<int>(lost));
  }
}

// Adds a hop for every pair of ranks that `ways` connects.
void add_hops(HopGraph& graph, const Machine& ways, bool turned) {
  Routes routes(ways);
  for (int from = 0; from < graph.ranks; from++)
    for (int to = 0; to < graph.ranks; to++) {
      if (from == to) continue;
      const auto route = turned ? routes.between(to, from) : routes.between(from, to);
      if (route.empty()) continue;
      Hop hop{from, to, {route.begin(), route.end()}, 0, std::numeric_limits<double>::infinity()};
      if (turned) std::reverse(hop.links.begin(), hop.links.end());
      for (const int32_t l : hop.links) {
        hop.us += graph.us[l];
        hop.gbps = std::min(hop.gbps, graph.gbps[l]);
      }
      graph.leaving[from].push_back(static_cast<int32_t>(graph.hops.size()));
      graph.hops.push_back(std::move(hop));
    }
}

}  // namespace

HopGraph hop_graph(const Machine& machine, int nranks, bool turned) {
  const std::vector<int> nodes = gpus(machine);
  check_ranks(machine, nranks);
  const FlowGraph ways = flow_graph(machine);
  HopGraph graph;
  graph.ranks = nranks;
  graph.leaving.resize(nranks);
  for (const Link& link : machine.links) {
    graph.gbps.push_back(link.gbps);
    graph.us.push_back(link.us);
  }
  for (int r = 0; r < nranks; r++)
    graph.host.push_back(machine.nodes[nodes[static_cast<size_t>(r)]].host);
  add_hops(graph, ways.machine, turned);
  check_reach(graph, machine);
  return graph;
}

void check_ranks(const Machine& machine, int nranks) {
  const size_t available = gpus(machine).size();
  if (nranks < 1 || available < static_cast<size_t>(nranks))
    fail(ncclInvalidArgument, "{} ranks, but {} has {} GPUs", nranks,
         machine.name.empty() ? "the machine" : machine.name, available);
}

void fail_unreachable(const Machine& machine, int from, int to) {
  const std::vector<int> nodes = gpus(machine);
  fail(ncclInvalidArgument, "{}: GPU {} cannot reach GPU {}, not even through other GPUs",
       machine.name.empty() ? "the machine" : machine.name, machine.nodes[nodes[from]].id,
       machine.nodes[nodes[to]].id);
}

}  // namespace weft
