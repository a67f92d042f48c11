// Finds the least cut ratio by Dinkelbach's method: guess a ratio, find a cut below it with a
// maximum flow, and take that cut's ratio as the next guess. Every guess is the ratio of a real
// cut, so the last one is exact. Few guesses are needed.
#include "algorithms/bounds/bounds.h"

#include <limits>
#include <numeric>

#include "algorithms/bounds/all_to_all.h"
#include "algorithms/bounds/capacities.h"
#include "algorithms/bounds/max_flow.h"
#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"

namespace weft {
namespace {

// capacity / ranks of a cut
struct Ratio {
  int64_t capacity = 0, ranks = 1;
  double value() const { return static_cast<double>(capacity) / static_cast<double>(ranks); }
};

bool operator<(const Ratio& a, const Ratio& b) {
  return static_cast<__int128>(a.capacity) * b.ranks < static_cast<__int128>(b.capacity) * a.ranks;
}

bool crosses(const std::vector<bool>& side, const Link& link) {
  return side[static_cast<size_t>(link.from)] && !side[static_cast<size_t>(link.to)];
}

class Cuts {
 public:
  Cuts(const Machine& machine, int nranks)
      : machine_(machine),
        capacities_(capacities(machine)),
        gpus_(gpus(machine)),
        extra_(static_cast<int>(machine.nodes.size())),
        flow_(extra_ + 1) {
    gpus_.resize(static_cast<size_t>(nranks));
    for (size_t l = 0; l < machine.links.size(); l++)
      flow_.add_edge(machine.links[l].from, machine.links[l].to, 0);
  }

  // Every GPU must receive the data of all others.
  Bound all_gather() {
    const auto n = static_cast<int64_t>(gpus_.size());
    const int first = static_cast<int>(machine_.links.size());
    for (const int gpu : gpus_) flow_.add_edge(extra_, gpu, 0);
    Ratio best{std::numeric_limits<int64_t>::max(), 1};
    for (const int gpu : gpus_) {
      std::vector<bool> others(machine_.nodes.size(), true);
      others[static_cast<size_t>(gpu)] = false;
      improve(best, others, n - 1);
    }
    // Visit the GPUs in turn until all of them accept the same guess.
    int64_t accepted = 0;
    for (size_t i = 0; accepted < n; i = (i + 1) % gpus_.size(), accepted++) {
      set_links(best.ranks);
      for (int64_t e = 0; e < n; e++)
        flow_.set_capacity(first + static_cast<int>(e), best.capacity);
      if (flow_.run(extra_, gpus_[i]) == n * best.capacity) continue;
      const std::vector<bool> side = flow_.source_side();
      improve(best, side, ranks_in(side));
      accepted = -1;
    }
    const Ratio gathered{best.capacity * n, best.ranks};
    return least(gathered, deliveries(-1));
  }

  // The root must send every GPU its own part of the data.
  Bound scatter(int root) {
    const auto n = static_cast<int64_t>(gpus_.size());
    const int source = gpus_[static_cast<size_t>(root)];
    const int first = static_cast<int>(machine_.links.size());
    for (const int gpu : gpus_) flow_.add_edge(gpu, extra_, 0);
    std::vector<bool> side(machine_.nodes.size(), false);
    side[static_cast<size_t>(source)] = true;
    Ratio best{std::numeric_limits<int64_t>::max(), 1};
    improve(best, side, n - 1);
    for (;;) {
      set_links(best.ranks);
      for (int64_t e = 0; e < n; e++)
        flow_.set_capacity(first + static_cast<int>(e), e == root ? 0 : best.capacity);
      if (flow_.run(source, extra_) == (n - 1) * best.capacity) break;
      side = flow_.source_side();
      improve(best, side, n - ranks_in(side));
    }
    return bound(best.value() * static_cast<double>(n));
  }

  // The root must send every GPU all of the data.
  Bound broadcast(int root) {
    set_links(1);
    Ratio best{std::numeric_limits<int64_t>::max(), 1};
    for (const int gpu : gpus_) {
      if (gpu == gpus_[static_cast<size_t>(root)]) continue;
      flow_.run(gpus_[static_cast<size_t>(root)], gpu);
      improve(best, flow_.source_side(), 1);
    }
    return least(best, deliveries(root));
  }

 private:
  // Only GPUs copy. So all data for a rank has left some GPU for this rank alone. Any set of ranks
  // receives at most a maximum flow from all GPUs. Each rank receives what it lacks: all of N
  // blocks but its own, or with a root the whole array.
  Ratio deliveries(int root) {
    const int source = extra_, sink = extra_ + 1;
    MaxFlow flow(extra_ + 2);
    const auto sender = [&](const Link& link) {
      const bool copies = machine_.nodes[static_cast<size_t>(link.from)].type == NodeType::kGpu;
      return copies ? source : link.from;
    };
    for (const Link& link : machine_.links) flow.add_edge(sender(link), link.to, 0);
    std::vector<int> receivers;
    for (size_t r = 0; r < gpus_.size(); r++)
      if (static_cast<int>(r) != root) receivers.push_back(gpus_[r]);
    for (const int gpu : receivers) flow.add_edge(gpu, sink, 0);
    const auto links = static_cast<int>(machine_.links.size());
    const auto count = static_cast<int64_t>(receivers.size());
    Ratio best{std::accumulate(capacities_.units.begin(), capacities_.units.end(), int64_t{0}), 1};
    for (;;) {
      for (int l = 0; l < links; l++)
        flow.set_capacity(l, capacities_.units[static_cast<size_t>(l)] * best.ranks);
      for (int r = 0; r < count; r++) flow.set_capacity(links + r, best.capacity);
      if (flow.run(source, sink) == count * best.capacity) break;
      const std::vector<bool> side = flow.source_side();
      best = {0, 0};
      delivery_links_.clear();
      for (const int gpu : receivers) best.ranks += side[static_cast<size_t>(gpu)] ? 0 : 1;
      for (int l = 0; l < links; l++) {
        const Link& link = machine_.links[static_cast<size_t>(l)];
        if (!side[static_cast<size_t>(sender(link))] || side[static_cast<size_t>(link.to)])
          continue;
        best.capacity += capacities_.units[static_cast<size_t>(l)];
        delivery_links_.push_back(l);
      }
    }
    if (root >= 0) return best;
    return {best.capacity * count, best.ranks * (count - 1)};
  }

  // No proof says that the second ratio can be reached, but some schedules reach it.
  Bound least(const Ratio& cut, const Ratio& delivered) const {
    if (!(delivered < cut)) return bound(cut.value());
    return {delivered.value() * capacities_.unit_gbps, false, delivery_links_};
  }

  void set_links(int64_t scale) {
    for (size_t l = 0; l < machine_.links.size(); l++)
      flow_.set_capacity(static_cast<int>(l), capacities_.units[l] * scale);
  }

  int64_t ranks_in(const std::vector<bool>& side) const {
    int64_t ranks = 0;
    for (const int gpu : gpus_) ranks += side[static_cast<size_t>(gpu)] ? 1 : 0;
    return ranks;
  }

  void improve(Ratio& best, const std::vector<bool>& side, int64_t ranks) {
    Ratio ratio{0, ranks};
    for (size_t l = 0; l < machine_.links.size(); l++)
      if (crosses(side, machine_.links[l])) ratio.capacity += capacities_.units[l];
    if (!(ratio < best)) return;
    best = ratio;
    side_ = side;
  }

  Bound bound(double units) const {
    Bound result{units * capacities_.unit_gbps, true, {}};
    for (size_t l = 0; l < machine_.links.size(); l++)
      if (crosses(side_, machine_.links[l])) result.narrow.push_back(static_cast<int>(l));
    return result;
  }

  const Machine& machine_;
  Capacities capacities_;
  std::vector<int> gpus_;
  int extra_;  // the source or sink for all ranks
  MaxFlow flow_;
  std::vector<bool> side_;           // of the best cut so far
  std::vector<int> delivery_links_;  // the links that limit deliveries()
};

// For a machine in which every walk is allowed.
Bound bound_of(const Machine& machine, const Collective& c) {
  const auto on_reverse = [&](auto query) {
    const Machine reverse = reversed(machine);
    return query(Cuts(reverse, c.nranks));
  };
  switch (c.kind) {
    case CollectiveKind::kAllGather:
      return Cuts(machine, c.nranks).all_gather();
    case CollectiveKind::kReduceScatter:
      return on_reverse([](Cuts cuts) { return cuts.all_gather(); });
    case CollectiveKind::kAllReduce: {
      const Bound scatter = on_reverse([](Cuts cuts) { return cuts.all_gather(); });
      Bound both = Cuts(machine, c.nranks).all_gather();
      if (both.algbw_gbps > 0) both.algbw_gbps = 1 / (1 / scatter.algbw_gbps + 1 / both.algbw_gbps);
      both.exact = both.exact && scatter.exact;
      return both;
    }
    case CollectiveKind::kBroadcast:
      return Cuts(machine, c.nranks).broadcast(c.root);
    case CollectiveKind::kReduce:
      return on_reverse([&](Cuts cuts) { return cuts.broadcast(c.root); });
    case CollectiveKind::kScatter:
      return Cuts(machine, c.nranks).scatter(c.root);
    case CollectiveKind::kGather:
      return on_reverse([&](Cuts cuts) { return cuts.scatter(c.root); });
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllV:
      return all_to_all_bound(machine, c.nranks);
    case CollectiveKind::kSendRecv:
      return Cuts(machine, 2).broadcast(0);
  }
  return {};
}

}  // namespace

Bound throughput_bound(const Machine& machine, const Collective& c) {
  return throughput_bound_of_ways(flow_graph(machine).machine, c);
}

Bound throughput_bound_of_ways(const Machine& machine, const Collective& c) {
  const auto available = static_cast<int>(gpus(machine).size());
  if (c.nranks > available || c.nranks < 1)
    fail(ncclInvalidArgument, "{} has {} GPUs, the collective {} ranks",
         machine.name.empty() ? "the machine" : machine.name, available, c.nranks);
  if (c.rooted() && (c.root < 0 || c.root >= c.nranks))
    fail(ncclInvalidArgument, "root {} of {} ranks", c.root, c.nranks);
  if (c.nranks == 1) return {std::numeric_limits<double>::infinity(), true, {}};
  return bound_of(machine, c);
}

}  // namespace weft
