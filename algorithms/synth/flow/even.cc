// See even.h.
#include "algorithms/synth/flow/even.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace weft {
namespace {

using Path = std::vector<int32_t>;  // links

constexpr int kMostPasses = 4;

class HopEvener {
 public:
  HopEvener(const FlowNetwork& network, const std::vector<Demand>& demands,
            PathAssignment& assignment)
      : network_(network), chunks_(assignment.chunks), paths_(assignment.paths) {
    from_.resize(static_cast<size_t>(network.ranks));
    to_.resize(static_cast<size_t>(network.ranks));
    for (size_t p = 0; p < paths_.size(); p++) {
      const Demand& demand = demands[p / static_cast<size_t>(chunks_)];
      from_[static_cast<size_t>(demand.from)].push_back(p);
      to_[static_cast<size_t>(demand.to)].push_back(p);
      hops_.push_back(hops_of(paths_[p]));
      for (const int32_t h : hops_.back()) count_[static_cast<size_t>(h)]++;
      ends_.push_back(demand);
    }
  }

  void run() {
    for (int pass = 0; pass < kMostPasses; pass++) {
      bool changed = false;
      for (size_t p = 0; p < paths_.size(); p++)
        if (crowded(p)) changed = exchange(p) || changed;
      if (!changed) break;
    }
  }

 private:
  // Relayed, over a hop that carries more than its own ranks' exchange.
  bool crowded(size_t p) const {
    return hops_[p].size() > 1 && std::any_of(hops_[p].begin(), hops_[p].end(), [&](int32_t h) {
             return count_[static_cast<size_t>(h)] > chunks_;
           });
  }

  std::vector<int32_t> hops_of(const Path& path) {
    std::vector<int32_t> hops;
    Path hop;
    for (const int32_t l : path) {
      hop.push_back(l);
      if (network_.links[static_cast<size_t>(l)].to >= network_.ranks) continue;
      const auto known = number_.try_emplace(std::move(hop), static_cast<int32_t>(count_.size()));
      if (known.second) count_.push_back(0);
      hops.push_back(known.first->second);
      hop.clear();
    }
    return hops;
  }

  // Returns by how much the sum of squares grows.
  int64_t add(const std::vector<int32_t>& hops, int32_t sign) {
    int64_t growth = 0;
    for (const int32_t h : hops) {
      int32_t& count = count_[static_cast<size_t>(h)];
      growth += 2 * sign * count + 1;
      count += sign;
    }
    return growth;
  }

  // Whether the path visits no node twice.
  bool simple(const Path& path) const {
    for (size_t i = 0; i < path.size(); i++)
      for (size_t j = i; j < path.size(); j++)
        if (network_.links[static_cast<size_t>(path[i])].from ==
            network_.links[static_cast<size_t>(path[j])].to)
          return false;
    return true;
  }

  struct Exchange {
    size_t partner = 0;
    Path mine, theirs;
    int64_t growth = 0;
  };

  // The best exchange with any chunk of the same source or destination.
  bool exchange(size_t p) {
    Exchange best{p, {}, {}, 0};
    for (const bool behind : {true, false}) {
      const auto& partners = behind ? to_[static_cast<size_t>(ends_[p].to)]
                                    : from_[static_cast<size_t>(ends_[p].from)];
      for (const size_t q : partners) {
        const bool like_the_last = q % static_cast<size_t>(chunks_) > 0 && hops_[q] == hops_[q - 1];
        if (!like_the_last) consider(p, q, behind, best);
      }
    }
    if (best.growth == 0) return false;
    put(p, std::move(best.mine));
    put(best.partner, std::move(best.theirs));
    return true;
  }

  void put(size_t p, Path path) {
    add(hops_[p], -1);
    paths_[p] = std::move(path);
    hops_[p] = hops_of(paths_[p]);
    add(hops_[p], 1);
  }

  // At every node on both paths: exchange the parts after it (`behind`, for one destination) or
  // before it (for one source).
  void consider(size_t p, size_t q, bool behind, Exchange& best) {
    const Path &a = paths_[p], &b = paths_[q];
    for (size_t i = 1; i < a.size(); i++)
      for (size_t j = 1; j < b.size(); j++) {
        if (network_.links[static_cast<size_t>(a[i])].from !=
            network_.links[static_cast<size_t>(b[j])].from)
          continue;
        const auto mine_at = a.begin() + static_cast<ptrdiff_t>(i);
        const auto theirs_at = b.begin() + static_cast<ptrdiff_t>(j);
        if (behind ? std::equal(mine_at, a.end(), theirs_at, b.end())
                   : std::equal(a.begin(), mine_at, b.begin(), theirs_at))
          continue;
        Path first(a.begin(), mine_at), second(b.begin(), theirs_at);
        first.insert(first.end(), theirs_at, b.end());
        second.insert(second.end(), mine_at, a.end());
        // With one source, the path that begins like a ends where b ends, so it becomes b's path.
        if (!behind) std::swap(first, second);
        if (!simple(first) || !simple(second)) continue;
        const std::vector<int32_t> mine = hops_of(first), theirs = hops_of(second);
        const int64_t growth =
            add(hops_[p], -1) + add(hops_[q], -1) + add(mine, 1) + add(theirs, 1);
        add(theirs, -1), add(mine, -1), add(hops_[q], 1), add(hops_[p], 1);
        if (growth < best.growth) best = Exchange{q, std::move(first), std::move(second), growth};
      }
  }

  const FlowNetwork& network_;
  const int chunks_;
  std::vector<Path>& paths_;
  std::vector<Demand> ends_;                    // per path
  std::vector<std::vector<int32_t>> hops_;      // per path
  std::vector<std::vector<size_t>> from_, to_;  // per rank, paths
  std::map<Path, int32_t> number_;
  std::vector<int32_t> count_;  // per hop, paths that take it
};

}  // namespace

void even_hops(const FlowNetwork& network, const std::vector<Demand>& demands,
               PathAssignment& assignment) {
  HopEvener(network, demands, assignment).run();
}

}  // namespace weft
