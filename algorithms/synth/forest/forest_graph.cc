// See forest_graph.h.
#include "algorithms/synth/forest/forest_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

// Nodes on some path between ranks. Other nodes have no way in or no way out.
std::vector<bool> useful_nodes(const Machine& machine, const std::vector<bool>& rank) {
  const size_t n = machine.nodes.size();
  std::vector<bool> useful(n, true);
  for (size_t v = 0; v < n; v++) useful[v] = rank[v] || machine.nodes[v].type != NodeType::kGpu;
  for (bool changed = true; changed;) {
    changed = false;
    // The only neighbour in each direction: -1 none, -2 several.
    std::vector<int> in(n, -1), out(n, -1);
    const auto note = [](int& only, int node) { only = only == -1 || only == node ? node : -2; };
    for (const Link& l : machine.links) {
      if (l.gbps <= 0 || !useful[static_cast<size_t>(l.from)] || !useful[static_cast<size_t>(l.to)])
        continue;
      note(out[static_cast<size_t>(l.from)], l.to);
      note(in[static_cast<size_t>(l.to)], l.from);
    }
    for (size_t v = 0; v < n; v++) {
      if (!useful[v] || rank[v]) continue;
      if (in[v] == -1 || out[v] == -1 || (in[v] >= 0 && in[v] == out[v])) {
        useful[v] = false;
        changed = true;
      }
    }
  }
  return useful;
}

}  // namespace

int64_t ForestDemand::total() const {
  int64_t sum = 0;
  for (const int64_t r : roots) sum += r;
  return sum;
}

ForestGraph::ForestGraph(const Machine& machine, int ranks, double seconds) {
  std::vector<int> number(machine.nodes.size(), -1);
  std::vector<bool> rank(machine.nodes.size(), false);
  const std::vector<int> all = gpus(machine);
  for (int r = 0; r < ranks; r++) {
    number[static_cast<size_t>(all[static_cast<size_t>(r)])] = r;
    rank[static_cast<size_t>(all[static_cast<size_t>(r)])] = true;
  }
  nodes_ = ranks;
  const std::vector<bool> useful = useful_nodes(machine, rank);
  for (size_t v = 0; v < machine.nodes.size(); v++)
    if (useful[v] && !rank[v]) number[v] = nodes_++;
  host_.resize(static_cast<size_t>(nodes_));
  inside_.resize(static_cast<size_t>(nodes_));
  for (size_t v = 0; v < machine.nodes.size(); v++) {
    if (number[v] < 0) continue;
    const Node& node = machine.nodes[v];
    host_[static_cast<size_t>(number[v])] = node.host;
    inside_[static_cast<size_t>(number[v])] = node.host >= 0 && node.type != NodeType::kNic;
  }
  index_.assign(square(nodes_), -1);
  for (size_t l = 0; l < machine.links.size(); l++) {
    const Link& link = machine.links[l];
    const int from = number[static_cast<size_t>(link.from)];
    const int to = number[static_cast<size_t>(link.to)];
    const auto units = static_cast<int64_t>(std::floor(link.gbps * seconds + 1e-7));
    if (from < 0 || to < 0 || from == to || units <= 0) continue;
    add(from, to, {{static_cast<int32_t>(l)}, units});
  }
}

int64_t ForestGraph::units(int from, int to) const {
  const int32_t e = index_[at(from, to)];
  return e < 0 ? 0 : edges_[static_cast<size_t>(e)].units;
}

void ForestGraph::add(int from, int to, const Strand& strand) {
  int32_t& e = index_[at(from, to)];
  if (e < 0) {
    e = static_cast<int32_t>(edges_.size());
    edges_.push_back({from, to, 0, {}});
  }
  ForestEdge& edge = edges_[static_cast<size_t>(e)];
  edge.units += strand.units;
  for (Strand& s : edge.strands)
    if (s.links == strand.links) {
      s.units += strand.units;
      return;
    }
  edge.strands.push_back(strand);
}

std::vector<Strand> ForestGraph::take(int from, int to, int64_t units) {
  ForestEdge& edge = edges_[static_cast<size_t>(index_[at(from, to)])];
  edge.units -= units;
  std::vector<Strand> taken;
  while (units > 0) {
    Strand& first = edge.strands.front();
    const int64_t some = std::min(units, first.units);
    taken.push_back({first.links, some});
    first.units -= some;
    units -= some;
    if (first.units == 0) edge.strands.erase(edge.strands.begin());
  }
  return taken;
}

std::vector<int32_t> ForestGraph::into(int node) const {
  std::vector<int32_t> nodes;
  for (int v = 0; v < nodes_; v++)
    if (units(v, node) > 0) nodes.push_back(v);
  return nodes;
}

std::vector<int32_t> ForestGraph::out_of(int node) const {
  std::vector<int32_t> nodes;
  for (int v = 0; v < nodes_; v++)
    if (units(node, v) > 0) nodes.push_back(v);
  return nodes;
}

int64_t shortage(const ForestGraph& graph, const ForestDemand& demand, bool exact) {
  const int source = graph.nodes();
  MaxFlow flow(source + 1);
  for (const ForestEdge& e : graph.edges())
    if (e.units > 0) flow.add_edge(e.from, e.to, e.units);
  for (int r = 0; r < demand.ranks; r++)
    if (demand.roots[static_cast<size_t>(r)] > 0)
      flow.add_edge(source, r, demand.roots[static_cast<size_t>(r)]);
  const int64_t total = demand.total();
  int64_t most = 0;
  for (int r = 0; r < demand.ranks; r++) {
    most = std::max(most, total - flow.run(source, r));
    if (most > 0 && !exact) break;
  }
  return most;
}

double least_seconds(const Machine& machine, const ForestDemand& demand, int64_t scale,
                     double precision) {
  ForestDemand scaled = demand;
  for (int64_t& r : scaled.roots) r *= scale;
  const auto fits = [&](double seconds) {
    return shortage(ForestGraph(machine, demand.ranks, seconds), scaled, false) == 0;
  };
  double most = 0;
  for (const Link& link : machine.links) most = std::max(most, link.gbps);
  if (most <= 0) return std::numeric_limits<double>::infinity();
  const double enough = static_cast<double>(scaled.total());
  double high = enough / most;
  for (int i = 0; !fits(high); i++) {
    if (i == 40) return std::numeric_limits<double>::infinity();
    high *= 2;
  }
  double low = high / 2;
  for (; fits(low); low /= 2) high = low;
  while (high - low > high / precision) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace weft
