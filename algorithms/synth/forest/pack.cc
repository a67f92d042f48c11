// See pack.h. Each unfinished tree must still enter every set of ranks that it has not reached. A
// tree may take an edge if enough capacity into all those sets remains. One maximum flow checks it.
#include "algorithms/synth/forest/pack.h"

#include <algorithm>

#include "src/base/error.h"

namespace weft {
namespace {

struct Growing {
  PackedTree tree;
  std::vector<int32_t> reached;  // in order
  std::vector<int32_t> depth;    // per rank, -1: not reached
  // Per pair of ranks: other trees need all of that edge. A set of ranks with only just enough
  // capacity into it stays that way, so the refusal stays true.
  std::vector<bool> refused;
  bool has(int32_t rank) const { return depth[static_cast<size_t>(rank)] >= 0; }
};

class Packer {
 public:
  Packer(const ForestGraph& graph, const ForestDemand& demand)
      : n_(demand.ranks), units_(static_cast<size_t>(n_) * static_cast<size_t>(n_), 0) {
    for (const ForestEdge& e : graph.edges()) units(e.from, e.to) = e.units;
    leaving_.resize(static_cast<size_t>(n_));
    for (int32_t a = 0; a < n_; a++)
      for (int32_t b = 0; b < n_; b++)
        if (units(a, b) > 0) leaving_[static_cast<size_t>(a)].push_back(b);
    for (int32_t r = 0; r < n_; r++) {
      const int64_t count = demand.roots[static_cast<size_t>(r)];
      if (count == 0) continue;
      Growing g{{r, count, {}},
                {r},
                std::vector<int32_t>(static_cast<size_t>(n_), -1),
                std::vector<bool>(units_.size(), false)};
      g.depth[static_cast<size_t>(r)] = 0;
      trees_.push_back(std::move(g));
    }
  }

  // All trees grow at once, one edge each in turn. No tree grows deeper while any can grow wider.
  // So no tree is left with only the edges that others did not want.
  std::vector<PackedTree> run() {
    for (int32_t depth = 1; unfinished() > 0; depth++) {
      if (depth >= n_) fail(ncclInternalError, "trees do not fit: a mistake in the forest engine");
      for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < trees_.size(); i++) any = extend(i, depth) || any;
      }
    }
    std::vector<PackedTree> done;
    for (Growing& g : trees_) done.push_back(std::move(g.tree));
    std::stable_sort(done.begin(), done.end(),
                     [](const PackedTree& a, const PackedTree& b) { return a.root < b.root; });
    return done;
  }

 private:
  size_t at(int32_t from, int32_t to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(n_) + static_cast<size_t>(to);
  }
  int64_t& units(int32_t from, int32_t to) { return units_[at(from, to)]; }

  bool complete(const Growing& g) const { return static_cast<int>(g.reached.size()) == n_; }
  size_t unfinished() const {
    return static_cast<size_t>(std::count_if(trees_.begin(), trees_.end(),
                                             [&](const Growing& g) { return !complete(g); }));
  }

  // Adds an edge that ends at this depth. It starts at the rank reached first that still has one,
  // and it is the edge with the most spare units.
  bool extend(size_t index, int32_t depth) {
    if (complete(trees_[index])) return false;
    for (const int32_t from : trees_[index].reached) {
      if (trees_[index].depth[static_cast<size_t>(from)] != depth - 1) continue;
      std::vector<int32_t> targets;
      for (const int32_t to : leaving_[static_cast<size_t>(from)])
        if (!trees_[index].has(to) && units(from, to) > 0 && !trees_[index].refused[at(from, to)])
          targets.push_back(to);
      // Ranks after this one first, so that ranks choose different ones.
      std::stable_sort(targets.begin(), targets.end(), [&](int32_t a, int32_t b) {
        const int64_t x = units(from, a), y = units(from, b);
        return x != y ? x > y : (a - from + n_) % n_ < (b - from + n_) % n_;
      });
      for (const int32_t to : targets) {
        int64_t most = std::min(trees_[index].tree.count, units(from, to));
        most = slack(index, from, to, most);
        if (most <= 0) {
          trees_[index].refused[at(from, to)] = true;
          continue;
        }
        if (most < trees_[index].tree.count) {
          Growing rest = trees_[index];
          rest.tree.count -= most;
          trees_.push_back(std::move(rest));
        }
        Growing& g = trees_[index];
        g.tree.count = most;
        units(from, to) -= most;
        g.tree.edges.push_back({from, to});
        g.depth[static_cast<size_t>(to)] = depth;
        g.reached.push_back(to);
        return true;
      }
    }
    return false;
  }

  // How many units of an edge the other unfinished trees can spare, up to `wanted`.
  int64_t slack(size_t index, int32_t from, int32_t to, int64_t wanted) {
    int64_t others = 0;
    size_t large = 0;
    // Trees that have reached `to` do not need the edge.
    const auto for_others = [&](auto visit) {
      for (size_t i = 0; i < trees_.size(); i++)
        if (i != index && !complete(trees_[i]) && !trees_[i].has(to)) visit(trees_[i]);
    };
    for_others([&](const Growing& g) {
      others += g.tree.count;
      if (g.reached.size() > 1) large++;
    });
    if (others == 0) return wanted;
    MaxFlow& flow = flow_;
    flow.clear(n_ + static_cast<int>(large));
    for (int32_t a = 0; a < n_; a++)
      for (const int32_t b : leaving_[static_cast<size_t>(a)])
        if (const int64_t u = units(a, b); u > 0) flow.add_edge(a, b, u);
    int node = n_;
    for_others([&](const Growing& g) {
      if (g.reached.size() == 1) {
        if (g.tree.root != from) flow.add_edge(from, g.tree.root, g.tree.count);
        return;
      }
      flow.add_edge(from, node, g.tree.count);
      for (const int32_t r : g.reached)
        if (r != from) flow.add_edge(node, r, g.tree.count);
      node++;
    });
    return flow.run(from, to, others + wanted) - others;
  }

  const int32_t n_;
  std::vector<int64_t> units_;
  std::vector<std::vector<int32_t>> leaving_;
  std::vector<Growing> trees_;
  MaxFlow flow_{0};
};

}  // namespace

std::vector<PackedTree> pack_trees(const ForestGraph& graph, const ForestDemand& demand) {
  return Packer(graph, demand).run();
}

}  // namespace weft
