// See shallow.h.
#include "algorithms/synth/forest/shallow.h"

#include <algorithm>
#include <cmath>

#include "algorithms/synth/forest/ways.h"

namespace weft {
namespace {

constexpr int32_t kNowhere = -1;

class ShallowForest {
 public:
  ShallowForest(const Machine& machine, int32_t root)
      : machine_(machine), root_(root), ranks_(gpus(machine)), ways_(find_ways(machine, ranks_)) {
    ports_.resize(ways_.size());
    for (size_t r = 0; r < ways_.size(); r++)
      for (size_t begin = 0, end = 0; begin < ways_[r].size(); begin = end) {
        const int32_t link = ways_[r][begin].links[0];
        while (end < ways_[r].size() && ways_[r][end].links[0] == link) end++;
        ports_[r].push_back({link, begin, end});
      }
  }

  struct Grown {
    HostForest forest;
    int32_t depth = 0;
  };

  // `seconds` is for all trees together.
  std::optional<Grown> grow(int32_t trees, double seconds) {
    left_.clear();
    for (const Link& link : machine_.links)
      left_.push_back(static_cast<int64_t>(std::floor(link.gbps * seconds + 1e-7)));
    home_.assign(ranks_.size(), kNowhere);
    Grown grown{{trees, {}}, 0};
    std::vector<Growing> growing(static_cast<size_t>(trees));
    for (int32_t t = 0; t < trees; t++) {
      Growing& g = growing[static_cast<size_t>(t)];
      g = {t, {root_, {}}, {root_}, std::vector<int32_t>(ranks_.size(), -1)};
      g.depth[static_cast<size_t>(root_)] = 0;
    }
    // One edge each in turn, so that all trees have the same choice.
    for (size_t edges = 1; edges < ranks_.size(); edges++)
      for (Growing& g : growing)
        if (!extend(g)) return std::nullopt;
    for (Growing& g : growing) {
      grown.depth = std::max(grown.depth, *std::max_element(g.depth.begin(), g.depth.end()));
      grown.forest.routed.push_back(std::move(g.tree));
    }
    return grown;
  }

 private:
  // A link that leaves a rank, and the paths over it.
  struct Port {
    int32_t link = 0;
    size_t begin = 0, end = 0;
  };

  struct Growing {
    int32_t number = 0;
    RoutedTree tree;
    std::vector<int32_t> reached;  // in order
    std::vector<int32_t> depth;    // per rank, -1: not reached
    bool has(int32_t rank) const { return depth[static_cast<size_t>(rank)] >= 0; }
  };

  struct Choice {
    int32_t from = 0;
    const Port* port = nullptr;
    int64_t ends = 0;  // ranks that it could go to
  };

  bool open(const Growing& g, const Way& way) const {
    return !g.has(way.to) && std::all_of(way.links.begin(), way.links.end(), [&](int32_t l) {
      return left_[static_cast<size_t>(l)] > 0;
    });
  }

  // Ranks that the tree could still reach through the port.
  int64_t ends(const Growing& g, int32_t from, const Port& port) const {
    if (left_[static_cast<size_t>(port.link)] == 0) return 0;
    int64_t count = 0;
    for (size_t w = port.begin; w < port.end; w++)
      count += open(g, ways_[static_cast<size_t>(from)][w]) ? 1 : 0;
    return count;
  }

  // How many edges the rank could still add to the tree.
  int64_t width(const Growing& g, int32_t rank) const {
    int64_t sum = 0;
    for (const Port& port : ports_[static_cast<size_t>(rank)])
      sum += std::min(left_[static_cast<size_t>(port.link)], ends(g, rank, port));
    return sum;
  }

  // Whether the tree could use all edges that the rank can send on.
  bool suits(const Growing& g, int32_t rank) const {
    int64_t sum = 0;
    for (const Port& port : ports_[static_cast<size_t>(rank)]) {
      int64_t count = 0;
      for (size_t w = port.begin; w < port.end; w++)
        count += ways_[static_cast<size_t>(rank)][w].to != root_ ? 1 : 0;
      sum += std::min(left_[static_cast<size_t>(port.link)], count);
    }
    return width(g, rank) == sum;
  }

  bool extend(Growing& g) {
    // Ranks relay in their own tree. Other ranks relay only when these have no edges left.
    for (const bool own : {true, false}) {
      Choice best;
      int64_t spare = 0;
      for (const int32_t from : g.reached) {
        if (own && from != root_ && home_[static_cast<size_t>(from)] != g.number) continue;
        for (const Port& port : ports_[static_cast<size_t>(from)]) {
          const int64_t count = ends(g, from, port);
          if (count == 0) continue;
          spare += std::min(left_[static_cast<size_t>(port.link)], count);
          // Ports that lead to few ranks go first, while those ranks are not yet reached. Ranks
          // reached first are near the root.
          if (best.port == nullptr || count < best.ends) best = {from, &port, count};
        }
      }
      if (best.port == nullptr) continue;
      const auto unreached = static_cast<int64_t>(ranks_.size() - g.reached.size());
      const bool more = spare < unreached;
      const Way& way = choose(g, best, more);
      int32_t& home = home_[static_cast<size_t>(way.to)];
      add(g, best.from, way);
      if (more && home == kNowhere && suits(g, way.to)) home = g.number;
      return true;
    }
    return false;
  }

  // A tree that needs more relays takes the rank that can send most. A tree that has enough leaves
  // free ranks to the others.
  const Way& choose(const Growing& g, const Choice& choice, bool more) const {
    const Way* best = nullptr;
    int64_t best_worth = 0;
    for (size_t w = choice.port->begin; w < choice.port->end; w++) {
      const Way& way = ways_[static_cast<size_t>(choice.from)][w];
      if (!open(g, way)) continue;
      const bool taken = home_[static_cast<size_t>(way.to)] != kNowhere;
      const int64_t worth = taken ? 0 : more ? width(g, way.to) : -1;
      if (best != nullptr && worth <= best_worth) continue;
      best = &way;
      best_worth = worth;
    }
    return *best;
  }

  void add(Growing& g, int32_t from, const Way& way) {
    for (const int32_t l : way.links) left_[static_cast<size_t>(l)]--;
    g.depth[static_cast<size_t>(way.to)] = g.depth[static_cast<size_t>(from)] + 1;
    g.reached.push_back(way.to);
    g.tree.edges.push_back({0, from, way.to, way.links, 0});
  }

  const Machine& machine_;
  const int32_t root_;
  const std::vector<int> ranks_;
  const std::vector<std::vector<Way>> ways_;  // per rank
  std::vector<std::vector<Port>> ports_;      // per rank
  std::vector<int64_t> left_;                 // per link: how often trees may still use it
  std::vector<int32_t> home_;                 // per rank: the tree in which it relays
};

}  // namespace

std::optional<HostForest> grow_shallow(const Machine& machine, int32_t root, double seconds,
                                       const ForestOptions& options) {
  ShallowForest forest(machine, root);
  for (double loss = options.acceptable_loss; loss < 0.02; loss *= 2) {
    std::vector<ShallowForest::Grown> grown;
    int32_t least = 0;
    for (int32_t trees = 1; trees <= options.most_trees; trees++) {
      auto some = forest.grow(trees, seconds * trees * (1 + loss));
      if (!some) continue;
      least = grown.empty() ? some->depth : std::min(least, some->depth);
      grown.push_back(std::move(*some));
    }
    for (ShallowForest::Grown& some : grown)
      if (some.depth <= least + 1) return std::move(some.forest);
  }
  return std::nullopt;
}

}  // namespace weft
