// Which ranks share a host, as generators for several hosts see it.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

namespace weft {

// Hosts are numbered in the order of their first ranks. Plain data.
struct HostMap {
  // `hosts`: the host of every rank, any numbers.
  explicit HostMap(std::span<const int> hosts) {
    std::map<int, int> numbers;
    for (size_t r = 0; r < hosts.size(); r++) {
      const auto [it, added] = numbers.try_emplace(hosts[r], static_cast<int>(ranks.size()));
      if (added) ranks.emplace_back();
      std::vector<int>& local = ranks[static_cast<size_t>(it->second)];
      host.push_back(it->second);
      index.push_back(static_cast<int>(local.size()));
      local.push_back(static_cast<int>(r));
      most = std::max(most, static_cast<int>(local.size()));
    }
  }

  int hosts() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& on(int h) const { return ranks[static_cast<size_t>(h)]; }
  int host_of(int rank) const { return host[static_cast<size_t>(rank)]; }
  int index_of(int rank) const { return index[static_cast<size_t>(rank)]; }
  // The rank that takes piece `p` through host `h`.
  int owner(int p, int h) const { return on(h)[static_cast<size_t>(p) % on(h).size()]; }
  // The other ranks of a rank's host, nearest successor first.
  std::vector<int> neighbours(int rank) const {
    const std::vector<int>& local = on(host_of(rank));
    std::vector<int> others;
    for (size_t d = 1; d < local.size(); d++)
      others.push_back(local[(static_cast<size_t>(index_of(rank)) + d) % local.size()]);
    return others;
  }

  std::vector<std::vector<int>> ranks;  // per host, ascending
  std::vector<int> host, index;         // per rank: its host, its number there
  int most = 0;                         // ranks of a host
};

}  // namespace weft
