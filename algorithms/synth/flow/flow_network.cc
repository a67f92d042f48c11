// See flow_network.h.
#include "algorithms/synth/flow/flow_network.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "algorithms/synth/routing/hops.h"
#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"

namespace weft {

FlowNetwork flow_network(const Machine& machine, int nranks) {
  check_ranks(machine, nranks);
  const Machine ways = flow_graph(machine).machine;
  FlowNetwork network{nranks, ways.links, {}};
  network.leaving.resize(ways.nodes.size());
  const auto barred = [&](int node) {
    return ways.nodes[node].type == NodeType::kGpu && node >= nranks;
  };
  for (size_t l = 0; l < ways.links.size(); l++) {
    const Link& link = ways.links[l];
    if (link.gbps > 0 && link.from != link.to && !barred(link.from) && !barred(link.to))
      network.leaving[link.from].push_back(static_cast<int32_t>(l));
  }
  CheapestPaths paths(network);
  const std::vector<double> nothing(ways.links.size(), 0.0);
  for (int from = 0; from < nranks; from++) {
    paths.search(from, -1, nothing, 0, std::numeric_limits<double>::infinity());
    for (int to = 0; to < nranks; to++)
      if (paths.distance(to) > 0) fail_unreachable(machine, from, to);
  }
  return network;
}

int64_t CheapestPaths::search(int source, int target, const std::vector<double>& price,
                              double relay_price, double limit) {
  distance_.assign(network_.leaving.size(), std::numeric_limits<double>::infinity());
  arrived_by_.assign(network_.leaving.size(), -1);
  done_.assign(network_.leaving.size(), false);
  heap_.assign(1, {0.0, source});
  distance_[source] = 0;
  int64_t looks = 0;
  while (!heap_.empty()) {
    const auto [at, node] = heap_.front();
    if (node == target || at >= limit) break;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    if (done_[node]) continue;
    done_[node] = true;
    looks += static_cast<int64_t>(network_.leaving[node].size());
    for (const int32_t l : network_.leaving[node]) {
      const int to = network_.links[l].to;
      const double there = at + price[l] + (to < network_.ranks ? relay_price : 0);
      if (there >= distance_[to]) continue;
      distance_[to] = there;
      arrived_by_[to] = l;
      heap_.emplace_back(there, to);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  return looks;
}

std::vector<int32_t> CheapestPaths::path_to(int node) const {
  std::vector<int32_t> path;
  for (int32_t l = arrived_by_[node]; l >= 0; l = arrived_by_[network_.links[l].from])
    path.push_back(l);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace weft
