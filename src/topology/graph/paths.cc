// See paths.h.
#include "src/topology/graph/paths.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "src/topology/graph/flow_graph.h"

namespace weft {

// Finds the path of highest bandwidth over allowed nodes and links. Of equals it takes the one of
// least latency.
class PathSearch {
 public:
  explicit PathSearch(const Machine& machine)
      : graph_(flow_graph(machine)), parts_(machine.nodes.size()) {
    for (size_t i = 0; i < graph_.origin.size(); i++)
      parts_[graph_.origin[i]].push_back(static_cast<int>(i));
    out_.resize(graph_.origin.size());
    for (size_t i = 0; i < machine_.links.size(); i++)
      out_[machine_.links[i].from].push_back(static_cast<int>(i));
  }

  // The nodes to search from and to. A NIC's path starts at its sending half and ends at its
  // receiving half.
  int start(int node) const { return parts_[node].back(); }
  int goal(int node) const { return parts_[node].front(); }
  // The graph in which every walk is allowed. Its links keep their original numbers.
  const Machine& machine() const { return machine_; }

  using Allow = std::function<bool(const Link&, const Node& between)>;
  Path widest(int from, int to, PathClass path_class, const Allow& allow) const {
    struct Best {
      double gbps = 0, us = 0;
      int link = -1;
      bool done = false;
    };
    std::vector<Best> best(machine_.nodes.size());
    const auto better = [](double gbps, double us, const Best& than) {
      return gbps > than.gbps * (1 + 1e-9) ||
             (gbps >= than.gbps * (1 - 1e-9) && us < than.us - 1e-9);
    };
    struct Entry {
      double gbps, us;
      int node;
      bool operator<(const Entry& o) const { return gbps != o.gbps ? gbps < o.gbps : us > o.us; }
    };
    std::priority_queue<Entry> queue;
    best[from] = {1e30, 0, -1, false};
    queue.push({1e30, 0, from});
    while (!queue.empty()) {
      const int node = queue.top().node;
      queue.pop();
      if (best[node].done) continue;
      best[node].done = true;
      if (node == to) break;
      for (const int index : out_[node]) {
        const Link& link = machine_.links[index];
        if (best[link.to].done || link.to == from) continue;
        if (!allow(link, link.to == to ? machine_.nodes[from] : machine_.nodes[link.to])) continue;
        const double gbps = std::min(best[node].gbps, link.gbps), us = best[node].us + link.us;
        if (!better(gbps, us, best[link.to])) continue;
        best[link.to] = {gbps, us, index, false};
        queue.push({gbps, us, link.to});
      }
    }
    Path path;
    if (best[to].link < 0) return path;
    path.path_class = path_class;
    path.gbps = best[to].gbps;
    path.us = best[to].us;
    for (int node = to; node != from; node = machine_.links[best[node].link].from)
      path.links.push_back(best[node].link);
    std::reverse(path.links.begin(), path.links.end());
    return path;
  }

 private:
  const FlowGraph graph_;
  const Machine& machine_ = graph_.machine;
  std::vector<std::vector<int>> parts_, out_;
};

namespace {

bool is_fast(const Link& link) {
  return link.type == LinkType::kNvlink || link.type == LinkType::kXgmi;
}

bool is_device(const Node& node) {
  return node.type == NodeType::kGpu || node.type == NodeType::kNic;
}

std::vector<Path> paths_with(const PathSearch& search, int first, int last) {
  if (first == last) return {{PathClass::kSelf, {}, 1e30, 0}};
  std::vector<Path> all;
  const Machine& machine = search.machine();
  const int from = search.start(first), to = search.goal(last);
  const auto add = [&](PathClass path_class, const PathSearch::Allow& allow) {
    Path path = search.widest(from, to, path_class, allow);
    const bool known = std::any_of(all.begin(), all.end(),
                                   [&](const Path& other) { return other.links == path.links; });
    if (!path.links.empty() && !known) all.push_back(std::move(path));
  };
  const bool same_host = machine.nodes[from].host == machine.nodes[to].host;
  add(PathClass::kNvlink, [](const Link& link, const Node& between) {
    return is_fast(link) && (between.type == NodeType::kSwitch || between.type == NodeType::kGpu);
  });
  // The search above allows GPUs in between. They make the path a relay.
  if (!all.empty()) {
    bool relay = false;
    for (size_t i = 1; i < all[0].links.size(); i++)
      relay = relay || machine.nodes[machine.links[all[0].links[i]].from].type == NodeType::kGpu;
    if (relay) {
      Path relayed = std::move(all[0]);
      relayed.path_class = PathClass::kNvlinkRelay;
      all.clear();
      add(PathClass::kNvlink, [&](const Link& link, const Node& between) {
        return is_fast(link) &&
               (between.type == NodeType::kSwitch || &between == &machine.nodes[from]);
      });
      all.push_back(std::move(relayed));
    }
  }
  if (same_host) {
    add(PathClass::kPcieSwitch, [&](const Link& link, const Node& between) {
      return link.type == LinkType::kPcie &&
             (between.type == NodeType::kSwitch || &between == &machine.nodes[from]);
    });
    const auto through_cpus = [&](const Link& link, const Node& between) {
      return !(is_fast(link) && machine.nodes[link.to].type == NodeType::kGpu &&
               machine.nodes[link.from].type == NodeType::kGpu) &&
             between.model.compare(0, 8, "NVSwitch") != 0 &&
             (!is_device(between) || &between == &machine.nodes[from]);
    };
    add(PathClass::kHostBridge, [&](const Link& link, const Node& between) {
      return link.type != LinkType::kSocket && link.type != LinkType::kNetwork &&
             through_cpus(link, between);
    });
    add(PathClass::kSockets, [&](const Link& link, const Node& between) {
      return link.type != LinkType::kNetwork && through_cpus(link, between);
    });
  } else {
    add(PathClass::kNetwork, [&](const Link&, const Node& between) {
      return between.type != NodeType::kGpu || &between == &machine.nodes[from];
    });
  }
  return all;
}

Path best_of(const std::vector<Path>& all) {
  Path best;
  for (const auto& path : all) {
    // A relay uses links of other GPUs, so it counts only if there is no direct NVLink.
    if (path.path_class == PathClass::kNvlinkRelay && best.path_class == PathClass::kNvlink)
      continue;
    if (path.gbps > best.gbps * 1.05) best = path;
  }
  return best;
}

}  // namespace

std::string_view name_of(PathClass path_class) {
  switch (path_class) {
    case PathClass::kSelf:
      return "self";
    case PathClass::kNvlink:
      return "NVLink";
    case PathClass::kNvlinkRelay:
      return "NVLink through a relay";
    case PathClass::kPcieSwitch:
      return "PCIe switch";
    case PathClass::kHostBridge:
      return "host bridge";
    case PathClass::kSockets:
      return "across sockets";
    case PathClass::kNetwork:
      return "network";
    case PathClass::kNone:
      return "none";
  }
  return "";
}

PathFinder::PathFinder(const Machine& machine)
    : search_(std::make_unique<const PathSearch>(machine)) {}
PathFinder::~PathFinder() = default;

std::vector<Path> PathFinder::paths(int from, int to) const {
  return paths_with(*search_, from, to);
}
Path PathFinder::best(int from, int to) const { return best_of(paths(from, to)); }

std::vector<Path> paths(const Machine& machine, int from, int to) {
  return PathFinder(machine).paths(from, to);
}

Path best_path(const Machine& machine, int from, int to) {
  return PathFinder(machine).best(from, to);
}

std::vector<NicChoice> nic_affinity(const Machine& machine) {
  const PathSearch search(machine);
  const std::vector<int> nics = nodes_of(machine, NodeType::kNic);
  std::vector<int> load(machine.nodes.size(), 0);
  std::vector<NicChoice> choices;
  for (const int gpu : gpus(machine)) {
    NicChoice choice;
    choice.gpu = gpu;
    for (const int nic : nics) {
      if (machine.nodes[nic].host != machine.nodes[gpu].host) continue;
      const auto all = paths_with(search, gpu, nic);
      if (all.empty()) continue;
      // Nearest first. A NIC that is down, or much slower than the path, comes last.
      const Path& path = all.front();
      const auto rank = [&](const Path& p, int n) {
        const double gbps = std::min(p.gbps, machine.nodes[n].gbps);
        return std::tuple(machine.nodes[n].us > 5, p.path_class, -gbps, load[n]);
      };
      if (choice.nic < 0 || rank(path, nic) < rank(choice.direct, choice.nic)) {
        choice.nic = nic;
        choice.direct = path;
      }
    }
    if (choice.nic >= 0) load[choice.nic]++;
    choices.push_back(std::move(choice));
  }
  // An unused NIC goes to a GPU to which it is as near as that GPU's first NIC. Of several such
  // GPUs, the one with the fewest extra NICs gets it.
  for (const int nic : nics) {
    if (load[nic] > 0) continue;
    NicChoice* taker = nullptr;
    for (auto& choice : choices) {
      if (choice.nic < 0 || machine.nodes[choice.gpu].host != machine.nodes[nic].host) continue;
      const Node &first = machine.nodes[choice.nic], &other = machine.nodes[nic];
      if (first.gbps > other.gbps * 1.01 || first.us != other.us) continue;
      const auto all = paths_with(search, choice.gpu, nic);
      const Path& now = choice.direct;
      if (all.empty() || all[0].path_class != now.path_class || all[0].gbps < now.gbps * 0.99 ||
          all[0].us > now.us + 1e-9)
        continue;
      if (taker == nullptr || choice.more.size() < taker->more.size()) taker = &choice;
    }
    if (taker != nullptr) taker->more.push_back(nic);
  }
  // A GPU connected by NVLink may be nearer to a NIC.
  for (auto& choice : choices) {
    if (choice.nic < 0) continue;
    for (const auto& other : choices) {
      if (other.gpu == choice.gpu || other.nic < 0) continue;
      if (machine.nodes[other.gpu].host != machine.nodes[choice.gpu].host) continue;
      const double now = choice.relay >= 0 ? choice.relayed.gbps : choice.direct.gbps;
      if (other.direct.path_class >= choice.direct.path_class && other.direct.gbps <= now) continue;
      const auto hops = paths_with(search, choice.gpu, other.gpu);
      if (hops.empty() || hops[0].path_class != PathClass::kNvlink) continue;
      Path path = hops[0];
      path.path_class = PathClass::kNvlinkRelay;
      path.links.insert(path.links.end(), other.direct.links.begin(), other.direct.links.end());
      path.gbps = std::min(path.gbps, other.direct.gbps);
      path.us += other.direct.us;
      const bool better = path.gbps > now * 1.001 ||
                          (choice.relay < 0 && path.gbps >= now && path.us <= choice.direct.us);
      if (!better) continue;
      choice.relay = other.gpu;
      choice.relayed = std::move(path);
    }
  }
  return choices;
}

}  // namespace weft
