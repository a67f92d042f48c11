// See flow_hops.h.
#include "algorithms/synth/flow_hops.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/topology/flow_graph.h"
#include "src/topology/routes.h"

namespace weft {
namespace {

void check_reach(const HopGraph& graph, const Machine& machine) {
  const std::vector<int> nodes = gpus(machine);
  for (int source = 0; source < graph.ranks; source++) {
    std::vector<bool> reached(static_cast<size_t>(graph.ranks), false);
    std::vector<int> queue = {source};
    reached[static_cast<size_t>(source)] = true;
    for (size_t next = 0; next < queue.size(); next++)
      for (const int32_t h : graph.leaving[static_cast<size_t>(queue[next])]) {
        const int to = graph.hops[static_cast<size_t>(h)].to;
        if (reached[static_cast<size_t>(to)]) continue;
        reached[static_cast<size_t>(to)] = true;
        queue.push_back(to);
      }
    const auto lost = std::find(reached.begin(), reached.end(), false) - reached.begin();
    if (lost == graph.ranks) continue;
    fail(ncclInvalidArgument, "{}: GPU {} cannot reach GPU {}, not even through other GPUs",
         machine.name.empty() ? "the machine" : machine.name,
         machine.nodes[static_cast<size_t>(nodes[static_cast<size_t>(source)])].id,
         machine.nodes[static_cast<size_t>(nodes[static_cast<size_t>(lost)])].id);
  }
}

}  // namespace

HopGraph hop_graph(const Machine& machine, int nranks, bool turned) {
  const std::vector<int> nodes = gpus(machine);
  if (nranks < 1 || nodes.size() < static_cast<size_t>(nranks))
    fail(ncclInvalidArgument, "{} ranks, but {} has {} GPUs", nranks,
         machine.name.empty() ? "the machine" : machine.name, nodes.size());
  const FlowGraph ways = flow_graph(machine);
  Routes routes(ways.machine);
  HopGraph graph;
  graph.ranks = nranks;
  graph.leaving.resize(static_cast<size_t>(nranks));
  for (const Link& link : machine.links) {
    graph.gbps.push_back(link.gbps);
    graph.us.push_back(link.us);
  }
  for (int r = 0; r < nranks; r++)
    graph.host.push_back(machine.nodes[static_cast<size_t>(nodes[static_cast<size_t>(r)])].host);
  for (int from = 0; from < nranks; from++)
    for (int to = 0; to < nranks; to++) {
      if (from == to) continue;
      const auto route = turned ? routes.between(to, from) : routes.between(from, to);
      if (route.empty()) continue;
      Hop hop{from, to, {route.begin(), route.end()}, 0, std::numeric_limits<double>::infinity()};
      if (turned) std::reverse(hop.links.begin(), hop.links.end());
      for (const int32_t l : hop.links) {
        hop.us += graph.us[static_cast<size_t>(l)];
        hop.gbps = std::min(hop.gbps, graph.gbps[static_cast<size_t>(l)]);
      }
      graph.leaving[static_cast<size_t>(from)].push_back(static_cast<int32_t>(graph.hops.size()));
      graph.hops.push_back(std::move(hop));
    }
  check_reach(graph, machine);
  return graph;
}

}  // namespace weft
