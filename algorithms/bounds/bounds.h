// What no schedule can beat: the greatest throughput of a collective on a machine, whatever its
// chunks, routes and order; latency is left out. Every node may relay data; only GPUs copy it, and
// reduce it when turned round. Pure functions.
#pragma once

#include <vector>

#include "src/schedule/collective.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct Bound {
  double algbw_gbps = 0;  // size of the whole array over time, as in nccl-tests; GB is 1e9 bytes
  // False when the optimum may be lower, never higher: the machine was too irregular to solve, or
  // what limits is that switches do not copy.
  bool exact = true;
  // The links that limit: an optimal schedule keeps every one of them busy all the time.
  std::vector<int> narrow;
};

// Ranks 0..n-1 are the first n GPUs. One rank moves nothing: its bound is infinite. A machine whose
// GPUs cannot all reach each other has the bound 0.
// - all_gather and reduce_scatter: N times the least capacity(S) / (GPUs in S) of all node sets S.
//   At most what all ranks can be sent at once, each by itself, times N / (N - 1): less than the
//   cuts say where links into a switch are narrower than those out of it.
// - all_reduce: reduce_scatter, then all_gather. Reachable, and what schedules are compared with;
//   where links differ, a schedule may do better.
// - broadcast and reduce: the least maximum flow between the root and any other rank; at most what
//   all of them can be sent at once, each by itself.
// - gather and scatter: the maximum flow between the root and all other ranks at once.
// - alltoall: the maximum concurrent flow, see all_to_all.h.
// Throws Error(ncclInvalidArgument) where the machine has fewer GPUs than the collective ranks.
Bound throughput_bound(const Machine& machine, const Collective& collective);

// The same for a machine in which every walk is allowed already, as flow_graph() makes it.
Bound throughput_bound_of_ways(const Machine& ways, const Collective& collective);

}  // namespace weft
