// Maximum flow in a network of integer capacities (Dinic), and the minimum cut that proves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

// Edges are added once; capacities can change between runs. Not thread-safe.
class MaxFlow {
 public:
  explicit MaxFlow(int nodes);

  // Returns the edge's number.
  int add_edge(int from, int to, int64_t capacity);
  void set_capacity(int edge, int64_t capacity) { capacity_[static_cast<size_t>(edge)] = capacity; }

  // Starts again with this many nodes and no edges; keeps its memory.
  void clear(int nodes);

  // Computes the flow from zero. Stops at `limit`; then there is no minimum cut.
  int64_t run(int source, int sink, int64_t limit = std::numeric_limits<int64_t>::max());

  // After run(): per node, whether it is on the source's side of the minimum cut nearest the
  // source.
  std::vector<bool> source_side() const;

 private:
  struct Arc {
    int32_t to = 0;
    int64_t residual = 0;
  };
  bool find_levels(int source, int sink);
  int64_t push(int node, int sink, int64_t limit);

  std::vector<int64_t> capacity_;              // per edge
  std::vector<Arc> arcs_;                      // arc 2e is edge e, arc 2e+1 its reverse
  std::vector<std::vector<int32_t>> leaving_;  // per node, numbers of arcs
  std::vector<int32_t> level_, queue_;
  std::vector<size_t> next_;
  int source_ = 0;  // of the last run
};

}  // namespace weft
