// See rank_machine.h.
#include "src/topology/graph/rank_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/topology/graph/network.h"
#include "src/topology/graph/paths.h"

namespace weft {
namespace {

// The same device or place in another view of the host; -1: that view lacks it.
int find_same(const Machine& machine, const Node& node) {
  for (size_t i = 0; i < machine.nodes.size(); i++) {
    const Node& other = machine.nodes[i];
    // Ports of one card share its bus id; their names differ.
    const bool by_bus = !node.pci.empty() && node.type != NodeType::kNic;
    if (other.type == node.type && (by_bus ? other.pci == node.pci : other.id == node.id))
      return static_cast<int>(i);
  }
  return -1;
}

std::string free_id(const Machine& machine, const Node& node) {
  std::string id = node.id;
  for (int i = 1; find_node(machine, id) >= 0; i++) id = fmt::format("{}.{}", node.id, i);
  return id;
}

// Whether `view`, whose nodes are those of `all` in the order of `index`, has other links.
bool has_other_links(const Machine& all, const Machine& view, const std::vector<int>& index) {
  if (view.links.size() != all.links.size()) return true;
  return std::any_of(view.links.begin(), view.links.end(), [&](Link link) {
    link.from = index[static_cast<size_t>(link.from)];
    link.to = index[static_cast<size_t>(link.to)];
    return std::find(all.links.begin(), all.links.end(), link) == all.links.end();
  });
}

// Whether the view has other links between the same devices.
bool add_view(Machine& all, const Machine& view) {
  std::vector<int> index;
  const size_t known = all.nodes.size();
  for (const Node& node : view.nodes) {
    int at = find_same(all, node);
    if (at < 0) {
      at = static_cast<int>(all.nodes.size());
      all.nodes.push_back(node);
      all.nodes.back().id = free_id(all, node);
    }
    index.push_back(at);
  }
  for (Link link : view.links) {
    link.from = index[static_cast<size_t>(link.from)];
    link.to = index[static_cast<size_t>(link.to)];
    const bool fresh =
        static_cast<size_t>(link.from) >= known || static_cast<size_t>(link.to) >= known;
    if (fresh) all.links.push_back(link);
  }
  return view.nodes.size() == known && all.nodes.size() == known &&
         has_other_links(all, view, index);
}

bool joins_gpus(const Link& link) {
  return link.type == LinkType::kNvlink || link.type == LinkType::kXgmi;
}

// The hosts whose GPUs every node reaches over NVLink or xGMI: of a GPU its own, of a switch those
// of all GPUs behind it and behind the switches that it is linked to.
std::vector<std::set<int>> hosts_of_nodes(const Machine& machine) {
  std::vector<std::set<int>> hosts(machine.nodes.size());
  for (size_t i = 0; i < hosts.size(); i++)
    if (machine.nodes[i].type == NodeType::kGpu) hosts[i] = {machine.nodes[i].host};
  for (bool grows = true; grows;) {
    grows = false;
    for (const Link& link : machine.links) {
      if (!joins_gpus(link)) continue;
      std::set<int>& to = hosts[static_cast<size_t>(link.to)];
      if (machine.nodes[static_cast<size_t>(link.to)].type != NodeType::kSwitch) continue;
      const size_t before = to.size();
      const std::set<int>& from = hosts[static_cast<size_t>(link.from)];
      to.insert(from.begin(), from.end());
      grows |= to.size() > before;
    }
  }
  return hosts;
}

// Each host gets its own part of a switch, with the links of that host.
Machine keep_links_in_hosts(const Machine& machine) {
  const std::vector<std::set<int>> hosts = hosts_of_nodes(machine);
  Machine split = machine;
  std::map<std::pair<int, int>, int> part;  // by node and host
  for (size_t i = 0; i < hosts.size(); i++) {
    if (machine.nodes[i].type != NodeType::kSwitch || hosts[i].size() < 2) continue;
    for (const int host : hosts[i]) {
      const bool first = host == *hosts[i].begin();
      const size_t at = first ? i : split.nodes.size();
      if (!first) split.nodes.push_back(machine.nodes[i]);
      split.nodes[at].host = host;
      split.nodes[at].id = fmt::format("{}.host{}", machine.nodes[i].id, host);
      part[{static_cast<int>(i), host}] = static_cast<int>(at);
    }
  }
  const auto in = [&](int node, int host) {
    const auto found = part.find({node, host});
    return found != part.end() ? found->second : node;
  };
  split.links.clear();
  for (const Link& link : machine.links) {
    if (!joins_gpus(link)) {
      split.links.push_back(link);
      continue;
    }
    for (const int host : hosts[static_cast<size_t>(link.from)])
      if (hosts[static_cast<size_t>(link.to)].contains(host)) {
        Link own = link;
        own.from = in(link.from, host);
        own.to = in(link.to, host);
        split.links.push_back(own);
      }
  }
  return split;
}

}  // namespace

bool links_hosts(const Machine& machine) {
  const std::vector<std::set<int>> hosts = hosts_of_nodes(machine);
  return std::any_of(machine.links.begin(), machine.links.end(), [&](const Link& link) {
    std::set<int> both = hosts[static_cast<size_t>(link.from)];
    both.insert(hosts[static_cast<size_t>(link.to)].begin(),
                hosts[static_cast<size_t>(link.to)].end());
    return joins_gpus(link) && both.size() > 1;
  });
}

std::vector<int> gpus_of_ranks(const Machine& machine, const RankPlaces& places, int nranks) {
  const std::vector<int> all = gpus(machine);
  std::vector<int> found;
  for (size_t r = 0; r < static_cast<size_t>(nranks) && !all.empty(); r++) {
    if (places.ids.empty()) {
      found.push_back(all[r % all.size()]);
      continue;
    }
    const auto it = std::find_if(all.begin(), all.end(), [&](int gpu) {
      const Node& node = machine.nodes[static_cast<size_t>(gpu)];
      return node.pci == places.ids[r] && (places.hosts.empty() || node.host == places.hosts[r]);
    });
    if (it == all.end()) return {};
    found.push_back(*it);
  }
  return found;
}

bool each_has_a_gpu(std::span<const int> gpus) {
  return !gpus.empty() && std::set<int>(gpus.begin(), gpus.end()).size() == gpus.size();
}

Machine reduce_to(const Machine& machine, std::span<const int> gpus) {
  Machine reduced;
  reduced.name = machine.name;
  reduced.notes = machine.notes;
  std::vector<int> index(machine.nodes.size(), -1);
  const auto take = [&](int node) {
    index[static_cast<size_t>(node)] = static_cast<int>(reduced.nodes.size());
    reduced.nodes.push_back(machine.nodes[static_cast<size_t>(node)]);
  };
  for (const int gpu : gpus) take(gpu);
  for (size_t i = 0; i < machine.nodes.size(); i++)
    if (machine.nodes[i].type != NodeType::kGpu) take(static_cast<int>(i));
  for (Link link : machine.links) {
    link.from = index[static_cast<size_t>(link.from)];
    link.to = index[static_cast<size_t>(link.to)];
    if (link.from >= 0 && link.to >= 0) reduced.links.push_back(link);
  }
  return reduced;
}

Machine peer_ways(const Machine& machine) {
  if (count_hosts(machine) > 1) {
    if (!links_hosts(machine)) return machine;
    Machine apart = keep_links_in_hosts(machine);
    join_nics(apart);
    return apart;
  }
  const PathFinder finder(machine);
  const std::vector<int> all = gpus(machine);
  for (size_t a = 0; a < all.size(); a++)
    for (size_t b = 0; b < a; b++)
      if (finder.best(all[a], all[b]).path_class != PathClass::kNvlink) return machine;
  Machine ways = machine;
  const auto is_gpu = [&](int node) {
    return machine.nodes[static_cast<size_t>(node)].type == NodeType::kGpu;
  };
  std::erase_if(ways.links, [&](const Link& link) {
    return link.type == LinkType::kPcie && (is_gpu(link.from) || is_gpu(link.to));
  });
  return ways;
}

Machine unite_views(const std::vector<Machine>& views) {
  const auto most = std::max_element(
      views.begin(), views.end(),
      [](const Machine& a, const Machine& b) { return gpus(a).size() < gpus(b).size(); });
  Machine all = *most;
  bool other_links = false;
  for (const Machine& view : views)
    if (&view != &*most) other_links = add_view(all, view) || other_links;
  if (other_links)
    all.notes.push_back(
        fmt::format("processes {} of this host: the first one counts", kOtherLinks));
  if (all.nodes.size() > most->nodes.size())
    all.notes.push_back(
        fmt::format("{} processes see different devices of this host: {} GPUs together",
                    views.size(), gpus(all).size()));
  return all;
}

}  // namespace weft
