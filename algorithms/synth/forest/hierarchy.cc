// See hierarchy.h.
#include "algorithms/synth/forest/hierarchy.h"

#include <algorithm>
#include <map>

#include "src/topology/graph/routes.h"

namespace weft {
namespace {

// Partners of a GPU in other hosts, along one dimension.
constexpr int32_t kMostPartners = 16;

// One host of a machine, and the machine's numbers of its links.
struct HostPart {
  Machine machine;
  std::vector<int32_t> links;
};

std::vector<HostPart> split_hosts(const Machine& machine) {
  std::map<int, HostPart> hosts;
  std::vector<int> number(machine.nodes.size(), -1);
  for (size_t v = 0; v < machine.nodes.size(); v++) {
    if (machine.nodes[v].host < 0) continue;
    Machine& host = hosts[machine.nodes[v].host].machine;
    number[v] = static_cast<int>(host.nodes.size());
    host.nodes.push_back(machine.nodes[v]);
  }
  for (size_t l = 0; l < machine.links.size(); l++) {
    Link link = machine.links[l];
    const Node& from = machine.nodes[static_cast<size_t>(link.from)];
    const Node& to = machine.nodes[static_cast<size_t>(link.to)];
    if (from.host < 0 || from.host != to.host) continue;
    link.from = number[static_cast<size_t>(link.from)];
    link.to = number[static_cast<size_t>(link.to)];
    hosts[from.host].machine.links.push_back(link);
    hosts[from.host].links.push_back(static_cast<int32_t>(l));
  }
  std::vector<HostPart> parts;
  for (auto& [host, part] : hosts) parts.push_back(std::move(part));
  return parts;
}

bool alike(const Machine& a, const Machine& b) {
  return a.links == b.links &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const Node& x, const Node& y) { return x.type == y.type; });
}

class Composer {
 public:
  Composer(const Machine& machine, const Collective& collective, std::vector<HostPart> hosts,
           HostForest inside)
      : collective_(collective),
        hosts_(std::move(hosts)),
        inside_(std::move(inside)),
        gpus_(static_cast<int>(gpus(hosts_[0].machine).size())),
        routes_(machine) {
    number_ranks(machine);
  }

  std::optional<HostForest> run() {
    HostForest all;
    if (collective_.rooted()) {
      const Seat root = seats_[static_cast<size_t>(collective_.root)];
      for (const RoutedTree& tree : inside_.routed)
        for (const Hops& hops : two_trees(root.host))
          all.routed.push_back(compose(tree, root, hops));
      all.trees = static_cast<int32_t>(all.routed.size());
    } else {
      all.trees = inside_.trees;
      for (const Seat& seat : seats_)
        for (const RoutedTree& tree : inside_.routed)
          if (tree.root == seat.gpu) all.routed.push_back(compose(tree, seat, grid(seat.host)));
    }
    if (!connected_) return std::nullopt;
    return all;
  }

 private:
  struct Seat {
    int32_t host = 0, gpu = 0;
  };
  using Hops = std::vector<std::pair<int32_t, int32_t>>;  // from host to host

  void number_ranks(const Machine& machine) {
    std::map<int, int32_t> host_number, gpus_of;
    for (const Node& node : machine.nodes)
      if (node.host >= 0) host_number.emplace(node.host, 0);
    int32_t next = 0;
    for (auto& [host, number] : host_number) number = next++;
    rank_.assign(hosts_.size(), std::vector<int32_t>(static_cast<size_t>(gpus_)));
    for (const int node : gpus(machine)) {
      const int host = machine.nodes[static_cast<size_t>(node)].host;
      const Seat seat{host_number[host], gpus_of[host]++};
      rank_[static_cast<size_t>(seat.host)][static_cast<size_t>(seat.gpu)] =
          static_cast<int32_t>(seats_.size());
      seats_.push_back(seat);
    }
  }

  int32_t rank(int32_t host, int32_t gpu) const {
    return rank_[static_cast<size_t>(host)][static_cast<size_t>(gpu)];
  }

  // From `start` along the rail of the tree's root, and from there through every host. A root that
  // sends to all hosts cannot also spread its own share inside.
  RoutedTree compose(const RoutedTree& tree, const Seat& start, const Hops& hops) {
    RoutedTree all{rank(start.host, start.gpu), {}};
    if (start.gpu != tree.root)
      spread(start.host, turned(tree, start.gpu), all);
    else if (collective_.rooted() && gpus_ > 2)
      spread(start.host, line(tree), all);
    else
      spread(start.host, tree, all);
    for (const auto& [from, to] : hops) {
      const int32_t a = rank(from, tree.root), b = rank(to, tree.root);
      const auto links = routes_.between(a, b);
      connected_ = connected_ && !links.empty();
      all.edges.push_back({0, a, b, {links.begin(), links.end()}, 0});
      spread(to, tree, all);
    }
    return all;
  }

  // One GPU after the other, so that none sends the root's share more than once. If GPUs cannot be
  // lined up, the neighbour's tree is used.
  RoutedTree line(const RoutedTree& tree) {
    RoutedTree all{tree.root, {}};
    for (int32_t k = 1; k < gpus_; k++) {
      const int32_t from = (tree.root + k - 1) % gpus_, to = (tree.root + k) % gpus_;
      all.edges.push_back({0, from, to, way_inside(from, to), 0});
      if (all.edges.back().links.empty()) break;
    }
    if (!all.edges.back().links.empty()) return all;
    const auto next =
        std::find_if(inside_.routed.begin(), inside_.routed.end(),
                     [&](const RoutedTree& t) { return t.root == (tree.root + 1) % gpus_; });
    return turned(*next, tree.root);
  }

  // Two binary trees, each for half of the data. An inner host of one tree is a leaf of the other,
  // so every host sends all of the data once.
  std::vector<Hops> two_trees(int32_t start) const {
    const auto hosts = static_cast<int32_t>(hosts_.size()), others = hosts - 1;
    if (others < 2) return {{{start, (start + 1) % hosts}}};
    std::vector<Hops> trees;
    for (const bool second : {false, true}) {
      // Numbers 1..others, in order; odd ones are leaves. The second tree is the first one shifted
      // by one, or reversed, so that its leaves are the even ones.
      const auto host = [&](int32_t x) {
        if (second) x = others % 2 == 1 ? x % others + 1 : others + 1 - x;
        return (start + x) % hosts;
      };
      int32_t top = 1;
      while (top * 2 <= others) top *= 2;
      trees.push_back({{start, host(top)}});
      std::vector<int32_t> inner = {top};
      for (size_t i = 0; i < inner.size(); i++) {
        const int32_t x = inner[i], half = (x & -x) / 2;
        if (half == 0) continue;
        int32_t right = half;
        while (right > 0 && x + right > others) right /= 2;
        for (const int32_t child : {x - half, x + right}) {
          if (child == x) continue;
          trees.back().emplace_back(host(x), host(child));
          inner.push_back(child);
        }
      }
    }
    return trees;
  }

  // Hosts as a grid: along its first dimension, then all of those along the next. There are as many
  // hops as dimensions, and few partners. Every host sends as much as it receives.
  Hops grid(int32_t start) const {
    auto hosts = static_cast<int32_t>(hosts_.size());
    Hops hops;
    std::vector<int32_t> have = {start};
    for (int32_t stride = 1; hosts > 1;) {
      int32_t size = hosts;
      for (int32_t divisor = 2; divisor <= kMostPartners && hosts > kMostPartners; divisor++)
        if (hosts % divisor == 0) size = divisor;
      const size_t before = have.size();
      for (int32_t k = 1; k < size; k++)
        for (size_t i = 0; i < before; i++) {
          const int32_t at = have[i] / stride % size;
          const int32_t to = have[i] + ((at + k) % size - at) * stride;
          hops.emplace_back(have[i], to);
          have.push_back(to);
        }
      stride *= size;
      hosts /= size;
    }
    return hops;
  }

  void spread(int32_t host, const RoutedTree& tree, RoutedTree& all) {
    const auto& number = hosts_[static_cast<size_t>(host)].links;
    for (Transfer e : tree.edges) {
      e.from = rank(host, e.from);
      e.to = rank(host, e.to);
      for (int32_t& l : e.links) l = number[static_cast<size_t>(l)];
      all.edges.push_back(std::move(e));
    }
  }

  // The same tree from another root: the path between the two roots is reversed.
  RoutedTree turned(const RoutedTree& tree, int32_t root) {
    std::vector<int32_t> parent(static_cast<size_t>(gpus_), -1);
    for (const Transfer& e : tree.edges) parent[static_cast<size_t>(e.to)] = e.from;
    RoutedTree result{root, {}};
    std::vector<bool> flipped(static_cast<size_t>(gpus_), false);
    for (int32_t v = root; v != tree.root; v = parent[static_cast<size_t>(v)]) {
      const int32_t up = parent[static_cast<size_t>(v)];
      flipped[static_cast<size_t>(v)] = true;
      result.edges.push_back({0, v, up, way_inside(v, up), 0});
      connected_ = connected_ && !result.edges.back().links.empty();
    }
    for (const Transfer& e : tree.edges)
      if (!flipped[static_cast<size_t>(e.to)]) result.edges.push_back(e);
    return result;
  }

  std::vector<int32_t> way_inside(int32_t from, int32_t to) {
    Routes routes(hosts_[0].machine);
    const auto links = routes.between(from, to);
    return {links.begin(), links.end()};
  }

  const Collective& collective_;
  const std::vector<HostPart> hosts_;
  const HostForest inside_;
  const int gpus_;
  Routes routes_;
  std::vector<Seat> seats_;                 // per rank
  std::vector<std::vector<int32_t>> rank_;  // per host and GPU
  bool connected_ = true;
};

}  // namespace

std::optional<HostForest> compose_hosts(const Machine& machine, const Collective& collective,
                                        const GrowHost& grow) {
  if (static_cast<size_t>(collective.nranks) != gpus(machine).size()) return std::nullopt;
  std::vector<HostPart> hosts = split_hosts(machine);
  if (hosts.size() < 2) return std::nullopt;
  for (const HostPart& host : hosts)
    if (!alike(host.machine, hosts[0].machine)) return std::nullopt;
  if (gpus(hosts[0].machine).empty()) return std::nullopt;
  HostForest inside{1, {RoutedTree{}}};
  if (gpus(hosts[0].machine).size() > 1) inside = grow(hosts[0].machine);
  return Composer(machine, collective, std::move(hosts), std::move(inside)).run();
}

}  // namespace weft
