// See forest.h.
#include "algorithms/synth/forest.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/bounds/capacities.h"
#include "algorithms/synth/forest_graph.h"
#include "algorithms/synth/forest_pack.h"
#include "algorithms/synth/forest_split.h"
#include "algorithms/synth/order.h"
#include "src/base/error.h"
#include "src/topology/flow_graph.h"

namespace weft {
namespace {

// A tree with the links of each of its edges.
struct RoutedTree {
  int32_t root = 0;
  std::vector<Transfer> edges;
};

struct Forest {
  int64_t trees = 0;  // per unit of the demand
  std::vector<RoutedTree> routed;
};

ForestDemand scaled(ForestDemand demand, int64_t by) {
  for (int64_t& r : demand.roots) r *= by;
  return demand;
}

// Gives every single tree its own strands of the edges.
std::vector<RoutedTree> route(const std::vector<PackedTree>& trees, ForestGraph graph) {
  std::vector<RoutedTree> routed;
  for (const PackedTree& tree : trees)
    for (int64_t i = 0; i < tree.count; i++) {
      RoutedTree one{tree.root, {}};
      for (const TreeEdge& e : tree.edges)
        one.edges.push_back({0, e.from, e.to, graph.take(e.from, e.to, 1)[0].links, 0});
      routed.push_back(std::move(one));
    }
  return routed;
}

// Fewest trees first: the loss of whole numbers shrinks as there are more.
Forest grow_forest(const Machine& machine, const ForestDemand& demand,
                   const ForestOptions& options) {
  constexpr int64_t kFine = 1024;
  const double unit =
      least_seconds(machine, demand, kFine, 1 << 14) / static_cast<double>(kFine);
  if (!std::isfinite(unit))
    fail(ncclInvalidUsage, "{}: some GPU cannot be reached from the others", machine.name);
  for (double loss = options.acceptable_loss;; loss *= 2) {
    for (int64_t trees = 1; trees <= options.most_trees; trees++) {
      const ForestDemand wanted = scaled(demand, trees);
      const double seconds = unit * static_cast<double>(trees) * (1 + loss);
      ForestGraph graph(machine, demand.ranks, seconds);
      if (shortage(graph, wanted, false) > 0) continue;
      const SplitGraph split = split_off(machine, graph, wanted);
      if (!split.fits) continue;
      return {trees, route(pack_trees(split.graph, wanted), split.graph)};
    }
    if (loss > 4) fail(ncclInvalidUsage, "{}: no trees reach all GPUs", machine.name);
  }
}

// Pieces of a tree follow each other through it; enough of them keep its links busy while the
// first ones travel.
int pieces_per_tree(const Forest& forest, const ForestDemand& demand) {
  int depth = 0;
  for (const RoutedTree& tree : forest.routed) {
    std::vector<int> at(static_cast<size_t>(demand.ranks), 0);
    for (const Transfer& e : tree.edges) {
      at[static_cast<size_t>(e.to)] = at[static_cast<size_t>(e.from)] + 1;
      depth = std::max(depth, at[static_cast<size_t>(e.to)]);
    }
  }
  const int64_t trees = forest.trees * demand.total();
  return static_cast<int>(std::clamp<int64_t>(2 * depth / trees, 1, 16));
}

std::vector<Transfer> transfers_of(const Forest& forest, const ForestDemand& demand, int repeat,
                                   bool by_rank) {
  std::vector<Transfer> transfers;
  std::vector<int32_t> next(static_cast<size_t>(demand.ranks), 0);
  const auto chunks = static_cast<int32_t>(forest.trees * repeat);
  for (const RoutedTree& tree : forest.routed) {
    int32_t& chunk = next[static_cast<size_t>(tree.root)];
    for (int i = 0; i < repeat; i++, chunk++)
      for (Transfer e : tree.edges) {
        e.piece = (by_rank ? tree.root * chunks : 0) + chunk;
        transfers.push_back(std::move(e));
      }
  }
  return transfers;
}

}  // namespace

bool forest_supports(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return collective.nranks > 1;
    default:
      return false;
  }
}

Routing forest_routing(const Machine& machine, const Collective& collective,
                       const ForestOptions& options) {
  const Machine forwards = flow_graph(machine).machine;
  const Machine backwards = reversed(forwards);
  ForestDemand demand{collective.nranks,
                      std::vector<int64_t>(static_cast<size_t>(collective.nranks), 1)};
  if (collective.rooted()) {
    std::fill(demand.roots.begin(), demand.roots.end(), 0);
    demand.roots[static_cast<size_t>(collective.root)] = 1;
  }
  Routing routing{collective, 1, {}, {}};
  const bool all_reduce = collective.kind == CollectiveKind::kAllReduce;
  const Machine& main = collective.reduces() && !all_reduce ? backwards : forwards;
  const Forest forest = grow_forest(main, demand, options);
  int repeat = std::max(options.pieces, pieces_per_tree(forest, demand));
  Forest reduction;
  if (all_reduce) {
    reduction = grow_forest(backwards, demand, options);
    // Both halves cut the data alike.
    const int64_t both = std::lcm(forest.trees, reduction.trees);
    repeat = std::max<int>(repeat, static_cast<int>(both / forest.trees));
    repeat = static_cast<int>((repeat * forest.trees + both - 1) / both * both / forest.trees);
  }
  routing.chunks = static_cast<int32_t>(forest.trees * repeat);
  const double blocks = collective.rooted() ? 1 : collective.nranks;
  const double piece = std::min(options.bytes / blocks / routing.chunks, 65536.0);
  routing.transfers = transfers_of(forest, demand, repeat, !collective.rooted());
  order_transfers(main, piece, repeat, routing.transfers);
  if (all_reduce) {
    const auto times = static_cast<int>(routing.chunks / reduction.trees);
    routing.reduction = transfers_of(reduction, demand, times, true);
    order_transfers(backwards, piece, times, routing.reduction);
  }
  return routing;
}

}  // namespace weft
