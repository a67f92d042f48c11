// Which links data crosses from one GPU to another when nobody relays it: through switches, NICs
// and CPUs, never through another GPU. The widest way; of those the one of least latency, then of
// fewest links, then the first in the order of the machine's links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// Of a machine in which every walk is allowed (flow_graph.h); it must outlive the routes. Ways from
// a GPU are searched for when first asked for. Not thread-safe.
class Routes {
 public:
  explicit Routes(const Machine& machine);

  // Links from rank to rank, in order; empty when there is no way (or from == to).
  std::span<const int32_t> between(int from, int to);

 private:
  struct Range {
    uint32_t begin = 0, size = 0;
  };
  void search(int from);
  std::vector<double> widths(int source) const;
  std::vector<int32_t> fastest(int source, double width) const;

  const Machine& machine_;
  std::vector<int> gpus_;
  std::vector<std::vector<int32_t>> leaving_;  // per node, links
  std::vector<std::vector<Range>> ranges_;     // per rank, empty or one per rank
  std::vector<int32_t> links_;                 // the links of all routes
};

}  // namespace weft
