// See flow_paths.h.
#include "algorithms/synth/flow/flow_paths.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
// Every relay costs a little, so that chunks are not relayed for nothing.
constexpr double kRelayPrice = 1e-6;
// How steeply prices grow, per sweep.
constexpr double kSharpness[] = {4, 8, 16, 16, 32, 32, 64, 64, 128, 128, 256, 256};
constexpr double kGoodEnough = 0.001;

class Assigner {
 public:
  Assigner(const FlowNetwork& network, const std::vector<Demand>& demands, int chunks,
           int64_t& effort)
      : links_(network.links),
        demands_(demands),
        ranks_(network.ranks),
        chunks_(chunks),
        effort_(effort),
        cheapest_(network),
        load_(network.links.size(), 0.0),
        price_(network.links.size(), 0.0) {
    for (const auto& leaving : network.leaving)
      usable_.insert(usable_.end(), leaving.begin(), leaving.end());
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
    for (const int32_t l : path) {
      load_[l] += sign / links_[l].gbps;
      price_[l] = price(l);
    }
  }

  // The price of one more chunk.
  double price(int32_t link) const {
    const double load = load_[link] + 1 / links_[link].gbps;
    return std::exp(sharpness_ * (load / scale_ - 1)) / links_[link].gbps;
  }

  void set_prices(double sharpness) {
    sharpness_ = sharpness;
    scale_ = busiest();
    for (const int32_t l : usable_) price_[l] = price(l);
  }

  double price_of(const std::vector<int32_t>& path) const {
    double sum = 0;
    for (const int32_t l : path) sum += price_[l] + (links_[l].to < ranks_ ? kRelayPrice : 0);
    return sum;
  }

  void search(int source, int target, double relay_price, double limit) {
    effort_ -= cheapest_.search(source, target, price_, relay_price, limit);
  }

  // Starts with the shortest paths of an idle machine.
  void begin_short() {
    for (const int32_t l : usable_) price_[l] = 1 / links_[l].gbps;
    int searched = -1;
    for (size_t d = 0; d < demands_.size(); d++) {
      if (demands_[d].from != searched) search(searched = demands_[d].from, -1, kRelayPrice, kFar);
      const auto path = cheapest_.path_to(demands_[d].to);
      for (int c = 0; c < chunks_; c++) paths_[d * chunks_ + c] = path;
    }
    for (const auto& path : paths_)
      for (const int32_t l : path) load_[l] += 1 / links_[l].gbps;
  }

  // Linear programming duality: all chunks together need at least the sum of distances. The machine
  // offers the sum of bandwidth times length per second.
  double proven() {
    double offered = 0, needed = 0;
    for (const int32_t l : usable_) offered += links_[l].gbps * price_[l];
    int searched = -1;
    for (const Demand& demand : demands_) {
      if (demand.from != searched) search(searched = demand.from, -1, 0, kFar);
      needed += cheapest_.distance(demand.to);
    }
    return needed * chunks_ / offered;
  }

  // Moves every chunk on a crowded link to the cheapest path. Returns whether any chunk moved.
  bool sweep() {
    bool moved = false;
    const double crowded = scale_ * (1 - 6 / sharpness_);
    for (size_t turn = 0; turn < paths_.size() && effort_ > 0; turn++) {
      // First chunks of all demands, then second chunks: neighbours do not move together.
      const size_t p = turn % demands_.size() * chunks_ + turn / demands_.size();
      const Demand& demand = demands_[p / chunks_];
      if (std::none_of(paths_[p].begin(), paths_[p].end(),
                       [&](int32_t l) { return load_[l] >= crowded; }))
        continue;
      carry(paths_[p], -1);
      const double now = price_of(paths_[p]);
      search(demand.from, demand.to, kRelayPrice, now);
      if (cheapest_.distance(demand.to) < now * (1 - 1e-9)) {
        paths_[p] = cheapest_.path_to(demand.to);
        moved = true;
      }
      carry(paths_[p], 1);
    }
    return moved;
  }

  const std::vector<Link>& links_;
  const std::vector<Demand>& demands_;
  const int ranks_, chunks_;
  int64_t& effort_;
  CheapestPaths cheapest_;
  std::vector<int32_t> usable_;       // links
  std::vector<double> load_, price_;  // per link
  std::vector<std::vector<int32_t>> paths_;
  double sharpness_ = 1, scale_ = 1;
};

}  // namespace

PathAssignment assign_paths(const FlowNetwork& network, const std::vector<Demand>& demands,
                            int chunks, double known_least, int64_t& effort) {
  return Assigner(network, demands, chunks, effort).run(known_least);
}

}  // namespace weft
