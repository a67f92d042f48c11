// The machine as a graph of integer capacities, for packing trees. Inside the forest engine.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/bounds/max_flow.h"
#include "src/topology/graph/machine.h"

namespace weft {

// How many trees start at each rank, in proportion. Every tree reaches all ranks.
struct ForestDemand {
  int ranks = 0;
  std::vector<int64_t> roots;  // per rank, 0: none
  int64_t total() const;
};

// Part of an edge's capacity, and the machine's links that it stands for.
struct Strand {
  std::vector<int32_t> links;
  int64_t units = 0;
};

struct ForestEdge {
  int32_t from = 0, to = 0;
  int64_t units = 0;
  std::vector<Strand> strands;  // their units add up to `units`
};

// Nodes 0..ranks-1 are the GPUs of the ranks. At most one edge between two nodes.
class ForestGraph {
 public:
  // `seconds` is the time of a unit of data: a link of b units a second has capacity floor(b *
  // seconds).
  ForestGraph(const Machine& machine, int ranks, double seconds);
  explicit ForestGraph(int nodes)
      : nodes_(nodes),
        host_(static_cast<size_t>(nodes), 0),
        inside_(static_cast<size_t>(nodes), true),
        index_(square(nodes), -1) {}

  int nodes() const { return nodes_; }
  int host(int node) const { return host_[static_cast<size_t>(node)]; }
  // In a host, and not a NIC.
  bool inside(int node) const { return inside_[static_cast<size_t>(node)]; }
  const std::vector<ForestEdge>& edges() const { return edges_; }
  int64_t units(int from, int to) const;
  // The strand of the next unit of an edge that has units.
  const Strand& strand(int from, int to) const {
    return edges_[static_cast<size_t>(index_[at(from, to)])].strands.front();
  }
  void add(int from, int to, const Strand& strand);
  // Removes units and returns their strands.
  std::vector<Strand> take(int from, int to, int64_t units);
  std::vector<int32_t> into(int node) const;    // neighbours with units towards the node
  std::vector<int32_t> out_of(int node) const;  // neighbours that the node has units towards

 private:
  static size_t square(int nodes) {
    return static_cast<size_t>(nodes) * static_cast<size_t>(nodes);
  }
  size_t at(int from, int to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(nodes_) + static_cast<size_t>(to);
  }
  int nodes_ = 0;
  std::vector<int> host_;       // per node
  std::vector<bool> inside_;    // per node
  std::vector<int32_t> index_;  // per pair of nodes
  std::vector<ForestEdge> edges_;
};

// How many units the graph lacks for the trees. 0 if they all fit, by Edmonds' theorem, if nodes
// that are not ranks are split off or relay without copying. Stops at the first rank that lacks
// units, unless `exact`.
int64_t shortage(const ForestGraph& graph, const ForestDemand& demand, bool exact);

// The least seconds in which `scale` times the demand fits, to one part in `precision`. Infinite if
// ranks cannot reach each other.
double least_seconds(const Machine& machine, const ForestDemand& demand, int64_t scale,
                     double precision);

}  // namespace weft
