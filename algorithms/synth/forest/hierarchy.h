// Clusters of equal hosts, level by level: trees are packed for one host only, hosts exchange their
// data along rails (every GPU with its counterparts), and each host passes on with its own trees
// what its GPUs get from others. The cost grows with a host and with the number of transfers, not
// with the graph of the cluster. Inside the forest engine.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "algorithms/synth/forest/forest.h"

namespace weft {

// The trees of one host: `trees` per GPU, every GPU a root.
struct HostForest {
  int32_t trees = 0;
  std::vector<RoutedTree> routed;
  bool uneven = false;  // as in Forest
};
using GrowHost = std::function<HostForest(const Machine& host)>;

// Trees as a flat forest has them, `trees` of them per root (of a broadcast: from its root), on a
// machine in which every walk is allowed. Nothing when hosts differ, there is one only, or ranks
// are not all of the GPUs. `grow` packs the trees of a host, or says that it has one GPU.
std::optional<HostForest> compose_hosts(const Machine& machine, const Collective& collective,
                                        const GrowHost& grow);

}  // namespace weft
