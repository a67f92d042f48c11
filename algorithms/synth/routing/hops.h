// The machine as ranks see it: which rank reaches which other without a relay, and over which
// links. Routes are those that messages take, so loads that an engine adds up are loads that come
// true.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct Hop {
  int32_t from = 0, to = 0;    // ranks
  std::vector<int32_t> links;  // of the machine, in the order in which `from` -> `to` crosses them
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

// Ranks 0..n-1 are the first n GPUs. With `turned` every hop is its opposite turned round: what
// mirrored collectives plan on. Throws Error(ncclInvalidArgument) with the reason where the machine
// has too few GPUs, or where some rank does not reach another even through relays.
HopGraph hop_graph(const Machine& machine, int nranks, bool turned = false);

// For engines that look at the machine in other ways, the same checks. Both throw
// Error(ncclInvalidArgument); the second one always.
void check_ranks(const Machine& machine, int nranks);
[[noreturn]] void fail_unreachable(const Machine& machine, int from, int to);

}  // namespace weft
