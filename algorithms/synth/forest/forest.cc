// See forest.h.
#include "algorithms/synth/forest/forest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "algorithms/bounds/bounds.h"
#include "algorithms/bounds/capacities.h"
#include "algorithms/synth/forest/flatten.h"
#include "algorithms/synth/forest/forest_graph.h"
#include "algorithms/synth/forest/hierarchy.h"
#include "algorithms/synth/forest/pack.h"
#include "algorithms/synth/forest/shallow.h"
#include "algorithms/synth/forest/split.h"
#include "algorithms/synth/forest/symmetry.h"
#include "algorithms/synth/routing/halves.h"
#include "algorithms/synth/routing/order.h"
#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"

namespace weft {
namespace {

// What executors move at once, if there is so much data.
constexpr double kSliceBytes = 65536;

// If a composition takes more than this factor of the best time, other methods are tried.
constexpr double kGoodComposition = 1.1;
// More ranks are packed flat only if nothing else works: it takes too long.
constexpr int kMostPacketRanks = 128;

// Trees of more hops are deep: data that they deliver late holds up other data.
constexpr int kDeepHops = 6;
// The same, if hosts differ.
constexpr int kDeepWhereUneven = 3;
// How often the order of deep trees' transfers is remade.
constexpr int kReturns = 4;

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

int deepest(const std::vector<RoutedTree>& trees, int ranks) {
  int depth = 0;
  for (const RoutedTree& tree : trees) {
    std::vector<int> at(static_cast<size_t>(ranks), 0);
    for (const Transfer& e : tree.edges) {
      at[static_cast<size_t>(e.to)] = at[static_cast<size_t>(e.from)] + 1;
      depth = std::max(depth, at[static_cast<size_t>(e.to)]);
    }
  }
  return depth;
}

// The least time of a tree per root, by the bound.
double best_seconds(const Machine& machine, const ForestDemand& demand) {
  Collective collective{CollectiveKind::kAllGather, demand.ranks, 0};
  if (demand.total() == 1) {
    collective.kind = CollectiveKind::kBroadcast;
    while (demand.roots[static_cast<size_t>(collective.root)] == 0) collective.root++;
  }
  return static_cast<double>(demand.total()) /
         throughput_bound_of_ways(machine, collective).algbw_gbps;
}

// The time of a tree per root, by the busiest link.
double seconds_of(const Machine& machine, const HostForest& forest) {
  std::vector<double> busy(machine.links.size(), 0);
  double most = 0;
  for (const RoutedTree& tree : forest.routed)
    for (const Transfer& e : tree.edges)
      for (const int32_t l : e.links) {
        const auto link = static_cast<size_t>(l);
        most = std::max(most, busy[link] += 1 / machine.links[link].gbps);
      }
  return most / forest.trees;
}

// Tries few trees first. The loss by rounding to integers shrinks with more trees.
HostForest grow_flat(const Machine& machine, const ForestDemand& demand,
                     const ForestOptions& options) {
  constexpr int64_t kFine = 1024;
  double unit = least_seconds(machine, demand, kFine, 1 << 14) / static_cast<double>(kFine);
  if (!std::isfinite(unit))
    fail(ncclInvalidUsage, "{}: some GPU cannot be reached from the others", machine.name);
  unit = std::max(unit, best_seconds(machine, demand));
  for (double loss = options.acceptable_loss;; loss *= 2) {
    for (int32_t trees = 1; trees <= options.most_trees; trees++) {
      const ForestDemand wanted = scaled(demand, trees);
      const double seconds = unit * static_cast<double>(trees) * (1 + loss);
      ForestGraph graph(machine, demand.ranks, seconds);
      if (shortage(graph, wanted, false) > 0) continue;
      const SplitGraph split = split_off(machine, graph, wanted);
      if (!split.fits) continue;
      HostForest forest{trees, route(pack_trees(split.graph, wanted), split.graph)};
      // From one root in a few hosts, a deep tree costs almost nothing.
      const bool many = demand.total() > 1 || demand.ranks > options.most_flat_ranks;
      if (many && deepest(forest.routed, demand.ranks) > kDeepHops)
        flatten(machine, demand.ranks, forest.routed);
      return forest;
    }
    if (loss > 4) fail(ncclInvalidUsage, "{}: no trees reach all GPUs", machine.name);
  }
}

// Small machines are packed flat. Clusters of equal hosts are composed level by level. If that is
// too slow, symmetry is tried, or for one root trees in which every rank relays only once. All
// others are packed flat.
HostForest grow(const Machine& machine, const Collective& collective, const ForestDemand& demand,
                const ForestOptions& options) {
  if (demand.ranks <= options.most_flat_ranks) return grow_flat(machine, demand, options);
  const auto grow_host = [&](const Machine& host) {
    const auto ranks = static_cast<int>(gpus(host).size());
    return grow_flat(host, {ranks, std::vector<int64_t>(static_cast<size_t>(ranks), 1)}, options);
  };
  const double best = best_seconds(machine, demand);
  auto composed = compose_hosts(machine, collective, grow_host);
  if (composed && seconds_of(machine, *composed) <= best * kGoodComposition)
    return std::move(*composed);
  const bool all = static_cast<size_t>(demand.ranks) == gpus(machine).size();
  if (!collective.rooted() && all)
    if (auto turned = grow_by_symmetry(machine, best, options)) return std::move(*turned);
  if (composed && (options.quick || demand.ranks > kMostPacketRanks)) return std::move(*composed);
  if (collective.rooted() && all)
    if (auto shallow = grow_shallow(machine, collective.root, best, options))
      return std::move(*shallow);
  if (options.quick)
    fail(ncclInvalidUsage, "{}: hosts that differ, whose trees take long to pack", machine.name);
  HostForest packed = grow_flat(machine, demand, options);
  packed.uneven = true;
  return packed;
}

// The pieces of a tree are pipelined through it. Enough pieces keep its links busy while the first
// ones travel.
int pieces_per_tree(const Forest& forest) {
  const int depth = deepest(forest.routed, forest.collective.nranks);
  return std::clamp(2 * depth / static_cast<int>(forest.routed.size()), 1, 16);
}

std::vector<Transfer> transfers_of(const std::vector<RoutedTree>& trees, int ranks, int chunks,
                                   int repeat, bool by_rank) {
  std::vector<Transfer> transfers;
  std::vector<int32_t> next(static_cast<size_t>(ranks), 0);
  for (const RoutedTree& tree : trees) {
    int32_t& chunk = next[static_cast<size_t>(tree.root)];
    for (int i = 0; i < repeat; i++, chunk++)
      for (Transfer e : tree.edges) {
        e.piece = (by_rank ? tree.root * chunks : 0) + chunk;
        transfers.push_back(std::move(e));
      }
  }
  return transfers;
}

// All pieces of a tree get the times of the first, so all instances have the same order.
void order_alike(const Machine& machine, double piece_bytes, const OrderOptions& options,
                 const std::vector<RoutedTree>& trees, int repeat,
                 std::vector<Transfer>& transfers) {
  std::vector<Transfer> first;
  size_t at = 0;
  for (const RoutedTree& tree : trees) {
    first.insert(first.end(), transfers.begin() + static_cast<std::ptrdiff_t>(at),
                 transfers.begin() + static_cast<std::ptrdiff_t>(at + tree.edges.size()));
    at += tree.edges.size() * static_cast<size_t>(repeat);
  }
  order_transfers(machine, piece_bytes, options, first);
  at = 0;
  size_t begin = 0;
  for (const RoutedTree& tree : trees) {
    for (int i = 0; i < repeat; i++)
      for (size_t e = 0; e < tree.edges.size(); e++)
        transfers[at++].begin_us = first[begin + e].begin_us;
    begin += tree.edges.size();
  }
}

// Per link, a link in the opposite direction of equal bandwidth and latency. Nothing if a link has
// none of its own.
std::optional<std::vector<int32_t>> mirror_links(const Machine& machine) {
  using Shape = std::tuple<int, int, double, double>;
  std::map<Shape, std::vector<int32_t>> back;
  for (size_t l = 0; l < machine.links.size(); l++) {
    const Link& link = machine.links[l];
    back[{link.to, link.from, link.gbps, link.us}].push_back(static_cast<int32_t>(l));
  }
  std::map<Shape, size_t> used;
  std::vector<int32_t> mirror;
  for (const Link& link : machine.links) {
    const Shape shape{link.from, link.to, link.gbps, link.us};
    const auto found = back.find(shape);
    size_t& next = used[shape];
    if (found == back.end() || next >= found->second.size()) return std::nullopt;
    mirror.push_back(found->second[next++]);
  }
  return mirror;
}

}  // namespace

bool is_deep(const Forest& forest) {
  const int ranks = forest.collective.nranks;
  return !forest.collective.rooted() && (deepest(forest.routed, ranks) > kDeepHops ||
                                         deepest(forest.reduction, ranks) > kDeepHops);
}

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

Forest grow_forest(const Machine& machine, const Collective& collective,
                   const ForestOptions& options) {
  const Machine forwards = flow_graph(machine).machine;
  ForestDemand demand{collective.nranks,
                      std::vector<int64_t>(static_cast<size_t>(collective.nranks), 1)};
  if (collective.rooted()) {
    std::fill(demand.roots.begin(), demand.roots.end(), 0);
    demand.roots[static_cast<size_t>(collective.root)] = 1;
  }
  Forest forest{collective, 0, {}, 0, {}};
  const bool all_reduce = collective.kind == CollectiveKind::kAllReduce;
  if (all_reduce || !collective.reduces()) {
    HostForest grown = grow(forwards, collective, demand, options);
    forest.trees = grown.trees;
    forest.uneven = grown.uneven;
    forest.routed = std::move(grown.routed);
    if (!all_reduce) return forest;
    // If every link has an equal opposite, so do the trees.
    const auto mirror = mirror_links(machine);
    if (mirror && machine.links.size() == forwards.links.size()) {
      forest.reduction_trees = forest.trees;
      forest.reduction = forest.routed;
      for (RoutedTree& tree : forest.reduction)
        for (Transfer& edge : tree.edges)
          for (int32_t& link : edge.links) link = (*mirror)[static_cast<size_t>(link)];
      return forest;
    }
  }
  HostForest grown = grow(reversed(forwards), collective, demand, options);
  forest.uneven = grown.uneven;
  (all_reduce ? forest.reduction_trees : forest.trees) = grown.trees;
  (all_reduce ? forest.reduction : forest.routed) = std::move(grown.routed);
  return forest;
}

Routing forest_routing(const Machine& machine, const Forest& forest, const ForestPieces& cut) {
  const Machine forwards = flow_graph(machine).machine;
  const Machine backwards = reversed(forwards);
  const Collective& collective = forest.collective;
  const bool all_reduce = collective.kind == CollectiveKind::kAllReduce;
  Routing routing{collective, 1, {}, {}};
  int repeat = std::max(cut.pieces, pieces_per_tree(forest));
  repeat = (repeat + cut.instances - 1) / cut.instances * cut.instances;
  if (all_reduce) {
    // Both halves divide the data alike.
    const int both = std::lcm(forest.trees, forest.reduction_trees);
    repeat = (repeat * forest.trees + both - 1) / both * both / forest.trees;
  }
  routing.chunks = forest.trees * repeat;
  const double blocks = collective.rooted() ? 1 : collective.nranks;
  const double piece = std::min(cut.bytes / blocks / routing.chunks, kSliceBytes);
  const bool anew =
      is_deep(forest) || (forest.uneven && !collective.rooted() &&
                          deepest(forest.routed, collective.nranks) > kDeepWhereUneven);
  const auto lay_out = [&](const Machine& on, const std::vector<RoutedTree>& trees, int times) {
    OrderOptions order;
    order.returns = anew ? kReturns : 0;
    order.mirrored = &on == &backwards;
    std::vector<Transfer> transfers =
        transfers_of(trees, collective.nranks, routing.chunks, times, !collective.rooted());
    if (cut.instances > 1) {
      order_alike(on, piece, order, trees, times, transfers);
      return transfers;
    }
    order.rounds = cut.by_rounds ? times : 1;
    order_transfers(on, piece, order, transfers);
    return transfers;
  };
  const auto gather = [&] {
    routing.transfers =
        lay_out(collective.reduces() && !all_reduce ? backwards : forwards, forest.routed, repeat);
  };
  const auto reduce = [&] {
    routing.reduction =
        lay_out(backwards, forest.reduction, routing.chunks / forest.reduction_trees);
  };
  if (all_reduce)
    in_parallel(forest.routed.size() * static_cast<size_t>(collective.nranks), reduce, gather);
  else
    gather();
  return routing;
}

}  // namespace weft
