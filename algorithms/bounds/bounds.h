// Upper bounds: the greatest throughput of a collective on a machine, for any chunks, routes and
// order. Latency is left out. Every node may relay data; only GPUs copy it. In the reverse
// direction, only GPUs reduce it. Pure functions.
#pragma once

#include <vector>

#include "src/schedule/collective.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct Bound {
  double algbw_gbps = 0;  // size of the whole array over time, as in nccl-tests; GB is 1e9 bytes
  // False if the optimum may be lower, never higher. Either the machine is too irregular to solve,
  // or the limit is that switches do not copy.
  bool exact = true;
  // The links that limit: an optimal schedule keeps all of them busy all the time.
  std::vector<int> narrow;
};

// Ranks 0..n-1 are the first n GPUs. One rank moves nothing: its bound is infinite. The bound is 0
// if the GPUs cannot all reach each other.
// - all_gather and reduce_scatter: N times the least capacity(S) / (GPUs in S) of all node sets S.
//   At most the rate at which all ranks can receive separate data at once, times N / (N - 1). That
//   is less than the cuts say if links into a switch are slower than links out of it.
// - all_reduce: reduce_scatter, then all_gather. It is reachable, and schedules are compared with
//   it. If links differ, a schedule may exceed it.
// - broadcast and reduce: the least maximum flow between the root and any other rank. At most the
//   rate at which all ranks can receive separate data at once.
// - gather and scatter: the maximum flow between the root and all other ranks at once.
// - alltoall: the maximum concurrent flow, see all_to_all.h.
//
// Throws Error(ncclInvalidArgument) if the machine has fewer GPUs than the collective has ranks.
Bound throughput_bound(const Machine& machine, const Collective& collective);

// For a machine from flow_graph(), in which every walk is allowed already.
Bound throughput_bound_of_ways(const Machine& ways, const Collective& collective);

}  // namespace weft
