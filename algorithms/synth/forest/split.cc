// See split.h. A split of g units lowers every cut by g or not at all. So the shortage after a
// trial is the amount by which the split was too large.
#include "algorithms/synth/forest/split.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace weft {
namespace {

struct Split {
  int32_t from = 0, to = 0;
  int64_t units = 0;
};

// Lowers the largest amounts until they add up to `total`, as evenly as possible.
void level(std::vector<int64_t>& amounts, int64_t total) {
  int64_t sum = std::accumulate(amounts.begin(), amounts.end(), int64_t{0});
  if (sum <= total) return;
  int64_t low = 0, high = *std::max_element(amounts.begin(), amounts.end());
  const auto under = [&](int64_t most) {
    int64_t s = 0;
    for (const int64_t a : amounts) s += std::min(a, most);
    return s;
  };
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (under(middle) <= total)
      low = middle;
    else
      high = middle - 1;
  }
  int64_t rest = total - under(low);
  for (int64_t& a : amounts) {
    const bool more = a > low && rest > 0;
    if (more) rest--;
    a = std::min(a, low) + (more ? 1 : 0);
  }
}

class Splitter {
 public:
  Splitter(const Machine& machine, const ForestGraph& graph, const ForestDemand& demand)
      : machine_(machine), graph_(graph), demand_(demand) {}

  SplitGraph run(bool trimmed) {
    if (trimmed) trim();
    std::vector<int> order;
    for (int v = demand_.ranks; v < graph_.nodes(); v++) order.push_back(v);
    // Nodes with few neighbours first: NICs before their switches.
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return graph_.into(a).size() * graph_.out_of(a).size() <
             graph_.into(b).size() * graph_.out_of(b).size();
    });
    for (const int node : order) {
      const ForestGraph before = graph_;
      const auto fits = [&](bool by_hosts) {
        evenly(node, by_hosts);
        if (shortage(graph_, demand_, false) == 0) return true;
        graph_ = before;
        return false;
      };
      if (!fits(true) && !fits(false)) pair_by_pair(node);
    }
    SplitGraph result{ForestGraph(demand_.ranks), shortage(graph_, demand_, false) == 0};
    for (const ForestEdge& e : graph_.edges())
      for (const Strand& s : e.strands)
        if (e.from < demand_.ranks && e.to < demand_.ranks) result.graph.add(e.from, e.to, s);
    return result;
  }

 private:
  // Removes capacity between switches and CPUs that the trees can spare, so that splitting does not
  // route data over it needlessly.
  void trim() {
    for (const ForestEdge& e : std::vector<ForestEdge>(graph_.edges())) {
      if (e.from < demand_.ranks || e.to < demand_.ranks || !graph_.inside(e.from) ||
          !graph_.inside(e.to))
        continue;
      for (int64_t some = (e.units + 1) / 2; some > 0;) {
        if (graph_.units(e.from, e.to) < some) {
          some /= 2;
          continue;
        }
        const ForestGraph before = graph_;
        graph_.take(e.from, e.to, some);
        if (shortage(graph_, demand_, false) == 0) continue;
        graph_ = before;
        some /= 2;
      }
    }
  }

  // Whether data that arrives over one edge and leaves over the other would visit a node twice.
  bool turns_back(int32_t from, int node, int32_t to) const {
    const auto nodes = [&](int a, int b) {
      std::vector<int> visited;
      for (const int32_t l : graph_.strand(a, b).links) {
        visited.push_back(machine_.links[static_cast<size_t>(l)].from);
        visited.push_back(machine_.links[static_cast<size_t>(l)].to);
      }
      std::sort(visited.begin(), visited.end());
      visited.erase(std::unique(visited.begin(), visited.end()), visited.end());
      return visited;
    };
    const std::vector<int> before = nodes(from, node), after = nodes(node, to);
    std::vector<int> both;
    std::set_intersection(before.begin(), before.end(), after.begin(), after.end(),
                          std::back_inserter(both));
    return both.size() > 1;  // the node itself is in both
  }

  void split(int node, int32_t from, int32_t to, int64_t units) {
    std::vector<Strand> first = graph_.take(from, node, units);
    std::vector<Strand> second = graph_.take(node, to, units);
    for (size_t a = 0, b = 0; a < first.size() && b < second.size();) {
      const int64_t some = std::min(first[a].units, second[b].units);
      Strand joined{first[a].links, some};
      joined.links.insert(joined.links.end(), second[b].links.begin(), second[b].links.end());
      graph_.add(from, to, joined);
      if ((first[a].units -= some) == 0) a++;
      if ((second[b].units -= some) == 0) b++;
    }
  }

  void drop_rest(int node) {
    for (const int32_t v : graph_.into(node)) graph_.take(v, node, graph_.units(v, node));
    for (const int32_t v : graph_.out_of(node)) graph_.take(node, v, graph_.units(node, v));
  }

  // The position of a node's neighbours among the neighbours of the same host. GPUs count by their
  // number in the host, so that GPUs of one rail have the same number even if some have no NIC.
  // Nothing unless all neighbours are in hosts.
  struct Seat {
    size_t host = 0, number = 0;
  };
  std::vector<Seat> seats_of(const std::vector<int32_t>& ports) const {
    std::map<int, size_t> hosts, used;
    std::vector<Seat> seats;
    for (const int32_t p : ports) {
      const int host = graph_.host(p);
      if (host < 0) return {};
      const size_t number = p < demand_.ranks ? number_in_host(p) : used[host]++;
      seats.push_back({hosts.emplace(host, hosts.size()).first->second, number});
    }
    return seats;
  }
  size_t number_in_host(int32_t rank) const {
    size_t number = 0;
    for (int32_t r = 0; r < rank; r++) number += graph_.host(r) == graph_.host(rank) ? 1 : 0;
    return number;
  }

  // Neighbours form a circle. A unit from each goes to the next one, then to the one after it, and
  // so on. By hosts: first to the neighbour of the same number (NICs: the same rail) of the next
  // host, then of the one after it.
  void evenly(int node, bool by_hosts) {
    std::vector<int32_t> ports = graph_.into(node);
    for (const int32_t v : graph_.out_of(node)) ports.push_back(v);
    std::sort(ports.begin(), ports.end());
    ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
    const size_t n = ports.size();
    std::vector<int64_t> in(n), out(n);
    for (size_t i = 0; i < n; i++) {
      in[i] = graph_.units(ports[i], node);
      out[i] = graph_.units(node, ports[i]);
    }
    level(in, std::accumulate(out.begin(), out.end(), int64_t{0}));
    level(out, std::accumulate(in.begin(), in.end(), int64_t{0}));
    const auto spread = [&](size_t shifts, auto target) {
      for (bool more = true; more;) {
        more = false;
        for (size_t shift = 1; shift < shifts; shift++)
          for (size_t i = 0; i < n; i++) {
            const size_t t = target(i, shift);
            if (t == i || in[i] == 0 || out[t] == 0 || turns_back(ports[i], node, ports[t]))
              continue;
            split(node, ports[i], ports[t], 1);
            in[i]--;
            out[t]--;
            more = true;
          }
      }
    };
    if (by_hosts) {
      const std::vector<Seat> seats = seats_of(ports);
      std::map<std::pair<size_t, size_t>, size_t> at;
      size_t hosts = 0;
      for (size_t i = 0; i < seats.size(); i++) {
        at[{seats[i].host, seats[i].number}] = i;
        hosts = std::max(hosts, seats[i].host + 1);
      }
      spread(hosts, [&](size_t i, size_t shift) {
        const auto found = at.find({(seats[i].host + shift) % hosts, seats[i].number});
        return found == at.end() ? i : found->second;
      });
    }
    spread(n, [&](size_t i, size_t shift) { return (i + shift) % n; });
    drop_rest(node);
  }

  void pair_by_pair(int node) {
    for (const int32_t u : graph_.into(node))
      for (const int32_t t : graph_.out_of(node)) {
        const int64_t most = std::min(graph_.units(u, node), graph_.units(node, t));
        if (u == t || most == 0) continue;
        const ForestGraph before = graph_;
        split(node, u, t, most);
        const int64_t lacks = shortage(graph_, demand_, true);
        if (lacks == 0) continue;
        graph_ = before;
        if (most > lacks) split(node, u, t, most - lacks);
      }
    drop_rest(node);
  }

  const Machine& machine_;
  ForestGraph graph_;
  const ForestDemand& demand_;
};

}  // namespace

SplitGraph split_off(const Machine& machine, const ForestGraph& graph, const ForestDemand& demand) {
  SplitGraph trimmed = Splitter(machine, graph, demand).run(true);
  if (trimmed.fits) return trimmed;
  return Splitter(machine, graph, demand).run(false);
}

}  // namespace weft
