// See rank_placement.h.
#include "src/planner/rank_placement.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/topology/graph/pipeline.h"

namespace weft {
namespace {

double time_of(const Path& path) { return path.gbps > 0 ? 1e3 / path.gbps + path.us : 1e9; }

// The GPUs to use, in pipeline order. A partly filled host keeps both ends, because they are
// nearest to the NIC.
std::vector<int> choose_gpus(const Machine& machine, int nranks) {
  std::vector<int> order = pipeline_order(machine);
  auto surplus = static_cast<int>(order.size()) - nranks;
  while (surplus > 0) {
    const int last = machine.nodes[static_cast<size_t>(order.back())].host;
    const auto begin = std::find_if(order.begin(), order.end(), [&](int gpu) {
      return machine.nodes[static_cast<size_t>(gpu)].host == last;
    });
    const auto members = static_cast<int>(order.end() - begin);
    if (members <= surplus) {
      order.erase(begin, order.end());
      surplus -= members;
    } else if (members - surplus == 1) {
      order.erase(begin + 1, order.end());
      surplus = 0;
    } else {
      order.erase(order.end() - 1 - surplus, order.end() - 1);
      surplus = 0;
    }
  }
  return order;
}

// A ring within one host also needs a good path from its last rank to its first.
void close_ring(std::vector<int>& order, const PathFinder& finder) {
  const size_t n = order.size();
  const auto total = [&](const std::vector<int>& ring) {
    double sum = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
      const double step = time_of(finder.best(ring[i], ring[(i + 1) % n]));
      sum += step;
      worst = std::max(worst, step);
    }
    return worst * static_cast<double>(n) + sum;  // the slowest step limits a ring
  };
  double best = total(order);
  for (bool better = n > 3; better;) {
    better = false;
    for (size_t a = 1; a < n; a++)
      for (size_t b = a + 1; b < n; b++) {
        std::vector<int> other = order;
        std::reverse(other.begin() + static_cast<long>(a),
                     other.begin() + static_cast<long>(b) + 1);
        const double value = total(other);
        if (value >= best * (1 - 1e-9)) continue;
        best = value;
        order = std::move(other);
        better = true;
      }
  }
}

}  // namespace

std::vector<PlacedRank> place_ranks(const Machine& machine, int nranks, WorkPattern pattern) {
  const auto available = static_cast<int>(gpus(machine).size());
  if (nranks < 1 || nranks > available)
    fail(ncclInvalidUsage, "{} has {} GPUs: there is no place for {} ranks",
         machine.name.empty() ? "this machine" : machine.name, available, nranks);
  std::vector<int> order = choose_gpus(machine, nranks);
  const PathFinder finder(machine);
  const bool one_host = std::all_of(order.begin(), order.end(), [&](int gpu) {
    return machine.nodes[static_cast<size_t>(gpu)].host ==
           machine.nodes[static_cast<size_t>(order[0])].host;
  });
  if (pattern == WorkPattern::kCycle && one_host && nranks <= 16) close_ring(order, finder);
  std::vector<PlacedRank> placed;
  for (size_t r = 0; r < order.size(); r++) {
    PlacedRank& rank = placed.emplace_back();
    rank.gpu = order[r];
    if (nranks == 1 || (r + 1 == order.size() && pattern == WorkPattern::kPipeline)) continue;
    const Path path = finder.best(order[r], order[(r + 1) % order.size()]);
    rank.way = path.path_class;
    rank.gbps = path.gbps;
    rank.us = path.us;
  }
  return placed;
}

}  // namespace weft
