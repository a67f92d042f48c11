// A bound for every algorithm.
#pragma once

#include <algorithm>
#include <limits>

#include "algorithms/bounds/bounds.h"
#include "src/schedule/collective.h"
#include "src/topology/graph/machine.h"

namespace weft::test {

// The usual all_reduce bound is for a reduce_scatter and then an all_gather, and can be beaten if
// links differ. Here all_reduce uses the broadcast bound: everything has to reach everyone.
inline double hard_bound(const Machine& m, const Collective& c) {
  if (c.kind != CollectiveKind::kAllReduce) return throughput_bound(m, c).algbw_gbps;
  double least = std::numeric_limits<double>::infinity();
  for (int root = 0; root < c.nranks; root++)
    least = std::min(least,
                     throughput_bound(m, {CollectiveKind::kBroadcast, c.nranks, root}).algbw_gbps);
  return least;
}

}  // namespace weft::test
