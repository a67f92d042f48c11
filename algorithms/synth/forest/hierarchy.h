// Clusters of equal hosts, level by level. Trees are packed for one host only. Hosts exchange their
// data along rails, every GPU with its counterparts. Each host spreads the received data with its
// own trees. The cost grows with the size of a host and the number of transfers, not with the graph
// of the cluster. Inside the forest engine.
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

// Trees like a flat forest's, `trees` per root (of a broadcast: from its root), on a machine in
// which every walk is allowed. Nothing if hosts differ, if there is only one, or if not every GPU
// is a rank. `grow` packs the trees of a host, or says that it has one GPU.
std::optional<HostForest> compose_hosts(const Machine& machine, const Collective& collective,
                                        const GrowHost& grow);

}  // namespace weft
