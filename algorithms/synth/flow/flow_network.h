// The machine for the flow engine: ranks, the nodes between them, and links with prices.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct FlowNetwork {
  int ranks = 0;                              // nodes 0..ranks-1; other nodes forward data
  std::vector<Link> links;                    // numbered as in the machine
  std::vector<std::vector<int32_t>> leaving;  // per node, links that data can cross
};

// Data can take every walk; no walk passes through GPUs that are not ranks. Throws
// Error(ncclInvalidArgument) with the reason if the machine has too few GPUs, or if some rank
// cannot reach another even through relays.
FlowNetwork flow_network(const Machine& machine, int nranks);

// Cheapest paths from one node, link by link. Keeps its memory for many searches; not thread-safe.
class CheapestPaths {
 public:
  explicit CheapestPaths(const FlowNetwork& network) : network_(network) {}

  // `price` is per link; `relay_price` is per arrival at a rank. Ends early at `target` (-1:
  // never), or when all other nodes cost more than `limit`. Returns how many links it has visited.
  int64_t search(int source, int target, const std::vector<double>& price, double relay_price,
                 double limit);
  double distance(int node) const { return distance_[node]; }  // infinite if not reached
  std::vector<int32_t> path_to(int node) const;                // links

 private:
  const FlowNetwork& network_;
  std::vector<double> distance_;
  std::vector<int32_t> arrived_by_;
  std::vector<bool> done_;
  std::vector<std::pair<double, int32_t>> heap_;
};

}  // namespace weft
