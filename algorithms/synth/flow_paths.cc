// See flow_paths.h.
#include "algorithms/synth/flow_paths.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace weft {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
// Every hop costs a little, so that nothing is relayed for nothing.
constexpr double kHopPrice = 1e-6;
// How sharply prices grow, sweep by sweep.
constexpr double kSharpness[] = {4, 8, 16, 16, 32, 32, 64, 64, 128, 128, 256, 256};
constexpr double kGoodEnough = 0.001;

class Assigner {
 public:
  Assigner(const HopGraph& graph, const std::vector<Demand>& demands, int chunks, int64_t& effort)
      : graph_(graph),
        demands_(demands),
        chunks_(chunks),
        effort_(effort),
        load_(graph.gbps.size(), 0.0),
        price_(graph.gbps.size(), 0.0),
        used_(graph.gbps.size(), false) {
    for (const Hop& hop : graph.hops)
      for (const int32_t l : hop.links) used_[l] = true;
    paths_.resize(demands.size() * static_cast<size_t>(chunks));
  }

  PathAssignment run(double known_least) {
    begin_short();
    PathAssignment best;
    best.chunks = chunks_;
    best.load = kFar;
    best.least = known_least * chunks_;
    const auto keep = [&] {
      if (busiest() < best.load) {
        best.load = busiest();
        best.paths = paths_;
      }
      return best.load <= best.least * (1 + kGoodEnough);
    };
    if (keep()) return best;
    for (const double sharpness : kSharpness) {
      set_prices(sharpness);
      best.least = std::max(best.least, proven());
      if (keep() || effort_ <= 0) break;
      if (!sweep()) continue;
      if (keep()) break;
    }
    return best;
  }

 private:
  double busiest() const { return *std::max_element(load_.begin(), load_.end()); }

  void carry(const std::vector<int32_t>& path, double sign) {
    for (const int32_t h : path)
      for (const int32_t l : graph_.hops[h].links) {
        load_[l] += sign / graph_.gbps[l];
        price_[l] = price(l);
      }
  }

  // Of one chunk more.
  double price(int32_t link) const {
    const double load = load_[link] + 1 / graph_.gbps[link];
    return std::exp(sharpness_ * (load / scale_ - 1)) / graph_.gbps[link];
  }

  void set_prices(double sharpness) {
    sharpness_ = sharpness;
    scale_ = busiest();
    for (size_t l = 0; l < price_.size(); l++)
      if (used_[l]) price_[l] = price(static_cast<int32_t>(l));
  }

  double price_of(int32_t hop) const {
    double sum = kHopPrice * floor_;
    for (const int32_t l : graph_.hops[hop].links) sum += price_[l];
    return sum;
  }

  // Cheapest ways from a rank; ends early at `target` (-1: never), or when everything left is
  // dearer than `limit`.
  void search(int source, int target, double limit) {
    const int n = graph_.ranks;
    distance_.assign(n, kFar);
    arrived_by_.assign(n, -1);
    done_.assign(n, false);
    distance_[source] = 0;
    for (;;) {
      int nearest = -1;
      for (int r = 0; r < n; r++)
        if (!done_[r] && distance_[r] < kFar && (nearest < 0 || distance_[r] < distance_[nearest]))
          nearest = r;
      if (nearest < 0 || nearest == target || distance_[nearest] >= limit) return;
      done_[nearest] = true;
      effort_ -= static_cast<int64_t>(graph_.leaving[nearest].size());
      for (const int32_t h : graph_.leaving[nearest]) {
        const int to = graph_.hops[h].to;
        if (done_[to]) continue;
        const double there = distance_[nearest] + price_of(h);
        if (there >= distance_[to]) continue;
        distance_[to] = there;
        arrived_by_[to] = h;
      }
    }
  }

  std::vector<int32_t> path_to(int target, int source) const {
    std::vector<int32_t> path;
    for (int r = target; r != source; r = graph_.hops[path.back()].from)
      path.push_back(arrived_by_[r]);
    std::reverse(path.begin(), path.end());
    return path;
  }

  // Everything over the ways that are shortest on an idle machine.
  void begin_short() {
    for (size_t l = 0; l < price_.size(); l++) price_[l] = used_[l] ? 1 / graph_.gbps[l] : 0;
    floor_ = 1;
    int searched = -1;
    for (size_t d = 0; d < demands_.size(); d++) {
      if (demands_[d].from != searched) search(searched = demands_[d].from, -1, kFar);
      const auto path = path_to(demands_[d].to, searched);
      for (int c = 0; c < chunks_; c++) paths_[d * chunks_ + c] = path;
    }
    for (const auto& path : paths_)
      for (const int32_t h : path)
        for (const int32_t l : graph_.hops[h].links) load_[l] += 1 / graph_.gbps[l];
  }

  // Linear programming duality: all chunks need at least the sum of distances, and a second of the
  // whole machine offers the sum of bandwidth times length.
  double proven() {
    double offered = 0, needed = 0;
    for (size_t l = 0; l < price_.size(); l++)
      if (used_[l]) offered += graph_.gbps[l] * price_[l];
    const double hop_price = std::exchange(floor_, 0.0);
    int searched = -1;
    for (const Demand& demand : demands_) {
      if (demand.from != searched) search(searched = demand.from, -1, kFar);
      needed += distance_[demand.to];
    }
    floor_ = hop_price;
    return needed * chunks_ / offered;
  }

  // Gives every chunk that crosses a crowded link the cheapest path there is now. Returns whether
  // anything moved.
  bool sweep() {
    bool moved = false;
    const double crowded = scale_ * (1 - 6 / sharpness_);
    for (size_t turn = 0; turn < paths_.size() && effort_ > 0; turn++) {
      // First chunks of all demands, then second ones: neighbours do not move together.
      const size_t p = turn % demands_.size() * chunks_ + turn / demands_.size();
      const Demand& demand = demands_[p / chunks_];
      const auto is_crowded = [&](int32_t h) {
        const auto& links = graph_.hops[h].links;
        return std::any_of(links.begin(), links.end(),
                           [&](int32_t l) { return load_[l] >= crowded; });
      };
      if (std::none_of(paths_[p].begin(), paths_[p].end(), is_crowded)) continue;
      carry(paths_[p], -1);
      double now = 0;
      for (const int32_t h : paths_[p]) now += price_of(h);
      search(demand.from, demand.to, now);
      if (distance_[demand.to] < now * (1 - 1e-9)) {
        paths_[p] = path_to(demand.to, demand.from);
        moved = true;
      }
      carry(paths_[p], 1);
    }
    return moved;
  }

  const HopGraph& graph_;
  const std::vector<Demand>& demands_;
  const int chunks_;
  int64_t& effort_;
  std::vector<double> load_, price_;  // per link
  std::vector<bool> used_;
  std::vector<std::vector<int32_t>> paths_;
  double sharpness_ = 1, scale_ = 1, floor_ = 1;
  std::vector<double> distance_;
  std::vector<int32_t> arrived_by_;
  std::vector<bool> done_;
};

}  // namespace

PathAssignment assign_paths(const HopGraph& graph, const std::vector<Demand>& demands, int chunks,
                            double known_least, int64_t& effort) {
  return Assigner(graph, demands, chunks, effort).run(known_least);
}

}  // namespace weft
