// See ways.h.
#include "algorithms/synth/forest/ways.h"

#include <algorithm>

namespace weft {

std::vector<std::vector<int32_t>> links_at(const Machine& machine, bool leaving) {
  std::vector<std::vector<int32_t>> links(machine.nodes.size());
  for (size_t l = 0; l < machine.links.size(); l++) {
    const Link& link = machine.links[l];
    links[static_cast<size_t>(leaving ? link.from : link.to)].push_back(static_cast<int32_t>(l));
  }
  return links;
}

std::vector<std::vector<Way>> find_ways(const Machine& machine, const std::vector<int>& ranks) {
  std::vector<int32_t> rank_of(machine.nodes.size(), -1);
  for (size_t r = 0; r < ranks.size(); r++)
    rank_of[static_cast<size_t>(ranks[r])] = static_cast<int32_t>(r);
  const auto leaving = links_at(machine, true);
  std::vector<std::vector<Way>> ways(ranks.size());
  for (size_t r = 0; r < ranks.size(); r++)
    for (const int32_t first : leaving[static_cast<size_t>(ranks[r])]) {
      std::vector<int32_t> by(machine.nodes.size(), -1), queue = {first};
      for (size_t i = 0; i < queue.size(); i++) {
        const Link& link = machine.links[static_cast<size_t>(queue[i])];
        int32_t& before = by[static_cast<size_t>(link.to)];
        if (before >= 0 || link.to == ranks[r] || link.gbps <= 0) continue;
        before = queue[i];
        if (rank_of[static_cast<size_t>(link.to)] < 0) {
          const auto& next = leaving[static_cast<size_t>(link.to)];
          queue.insert(queue.end(), next.begin(), next.end());
          continue;
        }
        Way way{rank_of[static_cast<size_t>(link.to)], {}};
        for (int node = link.to; node != ranks[r];) {
          way.links.push_back(by[static_cast<size_t>(node)]);
          node = machine.links[static_cast<size_t>(way.links.back())].from;
        }
        std::reverse(way.links.begin(), way.links.end());
        ways[r].push_back(std::move(way));
      }
    }
  return ways;
}

}  // namespace weft
