// See symmetry.h.
#include "algorithms/synth/forest/symmetry.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "algorithms/synth/forest/ways.h"

namespace weft {
namespace {

// With more roots of their own, trees take long to grow.
constexpr int32_t kMostQuickRoots = 4;

// Tries to rotate by `step` ranks. GPUs have fixed images. Other nodes follow from their links: the
// first to the first and so on.
std::optional<Rotation> rotation_by(const Machine& machine, const std::vector<int>& ranks,
                                    size_t step) {
  const auto leaving = links_at(machine, true), arriving = links_at(machine, false);
  std::vector<int> image(machine.nodes.size(), -1), order;
  for (size_t r = 0; r < ranks.size(); r++) {
    image[static_cast<size_t>(ranks[r])] = ranks[(r + step) % ranks.size()];
    order.push_back(ranks[r]);
  }
  for (size_t i = 0; i < order.size(); i++) {
    const auto from = static_cast<size_t>(order[i]), to = static_cast<size_t>(image[from]);
    for (const auto* links : {&leaving, &arriving}) {
      const auto &mine = (*links)[from], &other = (*links)[to];
      if (mine.size() != other.size()) return std::nullopt;
      for (size_t k = 0; k < mine.size(); k++) {
        const Link &a = machine.links[static_cast<size_t>(mine[k])],
                   &b = machine.links[static_cast<size_t>(other[k])];
        const auto node = static_cast<size_t>(links == &leaving ? a.to : a.from);
        if (machine.nodes[node].type == NodeType::kGpu || image[node] >= 0) continue;
        image[node] = links == &leaving ? b.to : b.from;
        order.push_back(static_cast<int>(node));
      }
    }
  }
  // Every link must have its own image.
  std::map<std::tuple<int, int, double, double>, std::vector<int32_t>> unused;
  for (size_t l = machine.links.size(); l-- > 0;) {
    const Link& link = machine.links[l];
    unused[{link.from, link.to, link.gbps, link.us}].push_back(static_cast<int32_t>(l));
  }
  Rotation rotation{static_cast<int32_t>(step), {}};
  for (const Link& link : machine.links) {
    const int from = image[static_cast<size_t>(link.from)],
              to = image[static_cast<size_t>(link.to)];
    const auto found = unused.find({from, to, link.gbps, link.us});
    if (found == unused.end() || found->second.empty()) return std::nullopt;
    rotation.links.push_back(found->second.back());
    found->second.pop_back();
  }
  return rotation;
}

// The kind of each link, and the number of links of a kind.
struct Kinds {
  std::vector<int32_t> of;  // per link
  std::vector<int32_t> size;
  explicit Kinds(const Rotation& rotation) : of(rotation.links.size(), -1) {
    for (size_t l = 0; l < of.size(); l++) {
      if (of[l] >= 0) continue;
      const auto kind = static_cast<int32_t>(size.size());
      size.push_back(0);
      for (size_t at = l; of[at] < 0; at = static_cast<size_t>(rotation.links[at])) {
        of[at] = kind;
        size.back()++;
      }
    }
  }
};

class SymmetricForest {
 public:
  SymmetricForest(const Machine& machine, const Rotation& rotation)
      : machine_(machine),
        rotation_(rotation),
        kinds_(rotation),
        ranks_(gpus(machine)),
        ways_(find_ways(machine, ranks_)) {}

  // `seconds` is for all trees together.
  std::optional<HostForest> grow(int32_t trees, double seconds) {
    const auto rotations = static_cast<double>(ranks_.size()) / rotation_.step;
    wide_.assign(kinds_.size.size(), 0);
    for (size_t l = 0; l < machine_.links.size(); l++) {
      const auto kind = static_cast<size_t>(kinds_.of[l]);
      wide_[kind] = machine_.links[l].gbps * seconds * kinds_.size[kind] / rotations + 1e-7;
    }
    left_ = wide_;
    growing_.clear();
    for (int32_t i = 0; i < trees * rotation_.step; i++) {
      growing_.push_back({{i % rotation_.step, {}}, std::vector<int32_t>(ranks_.size(), -1)});
      growing_.back().depth[static_cast<size_t>(i % rotation_.step)] = 0;
    }
    // One edge each in turn, so that all trees have the same choice.
    for (size_t edges = 1; edges < ranks_.size(); edges++)
      for (Growing& g : growing_)
        if (!extend(g)) return std::nullopt;
    return rotated(trees);
  }

 private:
  struct Growing {
    RoutedTree tree;
    std::vector<int32_t> depth;  // per rank, -1: not reached
  };

  // What would remain of the scarcest kind on the path, as a part of the original.
  double spare(const Way& way) const {
    double least = 1;
    for (const int32_t l : way.links) {
      const auto kind = static_cast<size_t>(kinds_.of[static_cast<size_t>(l)]);
      if (left_[kind] < 1) return -1;
      least = std::min(least, left_[kind] / wide_[kind]);
    }
    return least;
  }

  // Adds the edge that leaves most to spare; of equals, the one nearest the root.
  bool extend(Growing& g) {
    const Way* best = nullptr;
    int32_t best_from = 0;
    double best_spare = -1;
    const auto n = static_cast<int32_t>(ranks_.size());
    for (int32_t i = 0; i < n; i++) {
      const int32_t from = (g.tree.root + i) % n, depth = g.depth[static_cast<size_t>(from)];
      if (depth < 0) continue;
      for (const Way& way : ways_[static_cast<size_t>(from)]) {
        if (g.depth[static_cast<size_t>(way.to)] >= 0) continue;
        const double spared = spare(way);
        if (spared < 0) continue;
        const bool nearer = best == nullptr || depth < g.depth[static_cast<size_t>(best_from)];
        if (spared > best_spare + 1e-9 || (spared > best_spare - 1e-9 && nearer)) {
          best = &way;
          best_from = from;
          best_spare = spared;
        }
      }
    }
    if (best == nullptr) return false;
    for (const int32_t l : best->links)
      left_[static_cast<size_t>(kinds_.of[static_cast<size_t>(l)])]--;
    g.depth[static_cast<size_t>(best->to)] = g.depth[static_cast<size_t>(best_from)] + 1;
    g.tree.edges.push_back({0, best_from, best->to, best->links, 0});
    return true;
  }

  HostForest rotated(int32_t trees) const {
    HostForest all{trees, {}};
    std::vector<int32_t> image(machine_.links.size());
    std::iota(image.begin(), image.end(), 0);
    const auto n = static_cast<int32_t>(ranks_.size());
    for (int32_t shift = 0; shift < n; shift += rotation_.step) {
      for (const Growing& g : growing_) {
        RoutedTree tree = g.tree;
        tree.root = (tree.root + shift) % n;
        for (Transfer& e : tree.edges) {
          e.from = (e.from + shift) % n;
          e.to = (e.to + shift) % n;
          for (int32_t& l : e.links) l = image[static_cast<size_t>(l)];
        }
        all.routed.push_back(std::move(tree));
      }
      for (int32_t& l : image) l = rotation_.links[static_cast<size_t>(l)];
    }
    std::stable_sort(all.routed.begin(), all.routed.end(),
                     [](const RoutedTree& a, const RoutedTree& b) { return a.root < b.root; });
    return all;
  }

  const Machine& machine_;
  const Rotation& rotation_;
  const Kinds kinds_;
  const std::vector<int> ranks_;
  const std::vector<std::vector<Way>> ways_;  // per rank
  std::vector<double> wide_, left_;           // per kind of link: how often trees may use it
  std::vector<Growing> growing_;
};

}  // namespace

std::optional<Rotation> find_rotation(const Machine& machine) {
  const std::vector<int> ranks = gpus(machine);
  for (size_t step = 1; step < ranks.size(); step++)
    if (ranks.size() % step == 0)
      if (auto rotation = rotation_by(machine, ranks, step)) return rotation;
  return std::nullopt;
}

std::optional<HostForest> grow_by_symmetry(const Machine& machine, double seconds,
                                           const ForestOptions& options) {
  const std::optional<Rotation> rotation = find_rotation(machine);
  if (!rotation || (options.quick && rotation->step > kMostQuickRoots)) return std::nullopt;
  SymmetricForest forest(machine, *rotation);
  for (double loss = options.acceptable_loss; loss < 0.02; loss *= 2)
    for (int32_t trees = 1; trees <= options.most_trees / 2; trees++)
      if (auto grown = forest.grow(trees, seconds * trees * (1 + loss))) return grown;
  return std::nullopt;
}

}  // namespace weft
