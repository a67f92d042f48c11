// The machine as ranks see it: which rank reaches which other without a relay, and over which
// links. Messages take the same routes, so the loads that an engine computes are the real loads.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct Hop {
  int32_t from = 0, to = 0;    // ranks
  std::vector<int32_t> links;  // of the machine, in the order of the route `from` -> `to`
  double us = 0;               // sum of the links
  double gbps = 0;             // least of the links
};

struct HopGraph {
  int ranks = 0;
  std::vector<Hop> hops;
  std::vector<std::vector<int32_t>> leaving;  // per rank, hops
  std::vector<double> gbps, us;               // per link of the machine
  std::vector<int> host;                      // per rank
};

// Ranks 0..n-1 are the first n GPUs. With `turned` every hop is the reverse of its opposite;
// mirrored collectives plan on that. Throws Error(ncclInvalidArgument) with the reason if the
// machine has too few GPUs, or if some rank cannot reach another even through relays.
HopGraph hop_graph(const Machine& machine, int nranks, bool turned = false);

// The same checks, for engines that use other views of the machine. Both throw
// Error(ncclInvalidArgument); the second one always.
void check_ranks(const Machine& machine, int nranks);
[[noreturn]] void fail_unreachable(const Machine& machine, int from, int to);

}  // namespace weft
