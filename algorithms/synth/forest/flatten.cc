// See flatten.h. A local search. It minimizes the sum of squared arrival times over all trees and
// ranks, so that the longest paths count most.
#include "algorithms/synth/forest/flatten.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace weft {
namespace {

// What crosses a link before and with the data: a few messages of the executor's size.
constexpr double kBytes = 4 * 65536.0;
constexpr int kMostSweeps = 6;
constexpr int64_t kRefused = std::numeric_limits<int64_t>::min() / 4;

class Flattener {
 public:
  Flattener(const Machine& machine, int ranks, std::vector<RoutedTree>& trees)
      : machine_(machine), n_(static_cast<size_t>(ranks)), trees_(trees), shapes_(trees.size()) {
    for (size_t t = 0; t < trees_.size(); t++) {
      Shape& shape = shapes_[t];
      shape.edge.assign(n_, -1);
      for (size_t e = 0; e < trees_[t].edges.size(); e++)
        shape.edge[static_cast<size_t>(trees_[t].edges[e].to)] = static_cast<int32_t>(e);
      measure(t);
    }
  }

  void run() {
    for (int sweep = 0; sweep < kMostSweeps; sweep++) {
      bool changed = false;
      for (size_t v = 0; v < n_; v++) changed = exchange_into(static_cast<int32_t>(v)) || changed;
      if (!changed) break;
    }
    for (size_t t = 0; t < trees_.size(); t++)
      std::stable_sort(trees_[t].edges.begin(), trees_[t].edges.end(),
                       [&](const Transfer& a, const Transfer& b) {
                         return shapes_[t].at[static_cast<size_t>(a.to)] <
                                shapes_[t].at[static_cast<size_t>(b.to)];
                       });
  }

 private:
  // Times are integers in nanoseconds, so that sums do not depend on the order.
  struct Shape {
    std::vector<int32_t> edge;   // per rank: the tree's edge that ends there, -1: the root
    std::vector<int64_t> at;     // per rank: when data arrives
    std::vector<int64_t> size;   // per rank: ranks in its subtree, itself included
    std::vector<int64_t> times;  // per rank: the sum of their times
  };

  struct Holder {
    int32_t tree = 0;
    int64_t gain = 0;  // of changing to the other path
  };

  int64_t cost(const Transfer& e) const {
    double us = 0, slowest = 0;
    for (const int32_t l : e.links) {
      const Link& link = machine_.links[static_cast<size_t>(l)];
      us += link.us;
      slowest = std::max(slowest, kBytes / link.gbps * 1e-3);
    }
    return std::llround((us + slowest) * 1e3) + 1;
  }

  Transfer& edge(int32_t tree, int32_t rank) {
    const auto t = static_cast<size_t>(tree);
    return trees_[t].edges[static_cast<size_t>(shapes_[t].edge[static_cast<size_t>(rank)])];
  }

  void measure(size_t t) {
    Shape& shape = shapes_[t];
    const auto& edges = trees_[t].edges;
    shape.at.assign(n_, -1);
    shape.at[static_cast<size_t>(trees_[t].root)] = 0;
    for (size_t v = 0; v < n_; v++) {
      chain_.clear();
      for (size_t u = v; shape.at[u] < 0;) {
        chain_.push_back(u);
        u = static_cast<size_t>(edges[static_cast<size_t>(shape.edge[u])].from);
      }
      for (; !chain_.empty(); chain_.pop_back()) {
        const Transfer& e = edges[static_cast<size_t>(shape.edge[chain_.back()])];
        shape.at[chain_.back()] = shape.at[static_cast<size_t>(e.from)] + cost(e);
      }
    }
    shape.size.assign(n_, 1);
    shape.times = shape.at;
    order_.resize(n_);
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(),
              [&](size_t a, size_t b) { return shape.at[a] > shape.at[b]; });
    for (const size_t v : order_) {
      if (shape.edge[v] < 0) continue;
      const auto from = static_cast<size_t>(edges[static_cast<size_t>(shape.edge[v])].from);
      shape.size[from] += shape.size[v];
      shape.times[from] += shape.times[v];
    }
  }

  // By how much the sum of squares falls if the tree reaches the rank by this transfer.
  int64_t gain(int32_t tree, int32_t rank, const Transfer& by) {
    const Shape& shape = shapes_[static_cast<size_t>(tree)];
    const auto v = static_cast<size_t>(rank);
    for (int32_t u = by.from; u != trees_[static_cast<size_t>(tree)].root; u = edge(tree, u).from)
      if (u == rank) return kRefused;
    const int64_t later = shape.at[static_cast<size_t>(by.from)] + cost(by) - shape.at[v];
    return -later * (2 * shape.times[v] + later * shape.size[v]);
  }

  bool exchange_into(int32_t rank) {
    std::map<int32_t, std::vector<int32_t>> trees;  // by the rank that they come from
    for (size_t t = 0; t < trees_.size(); t++)
      if (trees_[t].root != rank)
        trees[edge(static_cast<int32_t>(t), rank).from].push_back(static_cast<int32_t>(t));
    bool changed = false;
    for (auto a = trees.begin(); a != trees.end(); a++)
      for (auto b = std::next(a); b != trees.end(); b++)
        changed = exchange(rank, a->second, b->second) || changed;
    return changed;
  }

  // Sorted: trees that gain most, or lose least, by changing to the other path come first.
  std::vector<Holder> ranked(int32_t rank, const std::vector<int32_t>& trees,
                             const Transfer& other) {
    std::vector<Holder> result;
    for (const int32_t t : trees) result.push_back({t, gain(t, rank, other)});
    std::stable_sort(result.begin(), result.end(),
                     [](const Holder& x, const Holder& y) { return x.gain > y.gain; });
    return result;
  }

  bool exchange(int32_t rank, std::vector<int32_t>& first, std::vector<int32_t>& second) {
    const std::vector<Holder> a = ranked(rank, first, edge(second[0], rank)),
                              b = ranked(rank, second, edge(first[0], rank));
    size_t done = 0;
    for (; done < std::min(a.size(), b.size()) && a[done].gain + b[done].gain > 0; done++) {
      const int32_t one = a[done].tree, other = b[done].tree;
      Transfer &x = edge(one, rank), &y = edge(other, rank);
      std::swap(x.from, y.from);
      std::swap(x.links, y.links);
      measure(static_cast<size_t>(one));
      measure(static_cast<size_t>(other));
      std::replace(first.begin(), first.end(), one, other);
      std::replace(second.begin(), second.end(), other, one);
    }
    return done > 0;
  }

  const Machine& machine_;
  const size_t n_;
  std::vector<RoutedTree>& trees_;
  std::vector<Shape> shapes_;
  std::vector<size_t> chain_, order_;  // scratch of measure()
};

}  // namespace

void flatten(const Machine& machine, int ranks, std::vector<RoutedTree>& trees) {
  Flattener(machine, ranks, trees).run();
}

}  // namespace weft
