// The links that data crosses from one GPU to another without a relay: through switches, NICs and
// CPUs, never through another GPU. The route has the highest bandwidth. Ties: least latency, then
// fewest links, then the first in the order of the machine's links. GPUs that are equally near to
// several NICs take them in turn, as nic_affinity() gives them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// `machine` must allow every walk (flow_graph.h) and must outlive the routes. The first query for a
// GPU searches all routes from it. Not thread-safe.
class Routes {
 public:
  explicit Routes(const Machine& machine);

  // Links from rank to rank, in order; empty if there is no route or from == to.
  std::span<const int32_t> between(int from, int to);

 private:
  struct Range {
    uint32_t begin = 0, size = 0;
  };
  void search(int from);
  std::vector<double> widths(int source) const;
  std::vector<int32_t> fastest(int source, double width) const;
  void find_twins();
  void spread(std::span<int32_t> route, int from, int to) const;
  int turn_of(int gpu, int neighbour, bool sends) const;
  int32_t link_like(int32_t link, int from, int to) const;

  const Machine& machine_;
  std::vector<int> gpus_;
  std::vector<std::vector<int32_t>> leaving_;  // per node, links
  std::map<int, std::vector<int>> twins_;      // of NICs: all with the same links, in order
  std::vector<std::vector<Range>> ranges_;     // per rank, empty or one range per rank
  std::vector<int32_t> links_;                 // the links of all routes
};

}  // namespace weft
