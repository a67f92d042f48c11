// Rings and chains: every rank talks to two neighbours. Traffic per link is least; latency grows
// with the number of ranks.
#include <span>
#include <vector>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "algorithms/generators/host_map.h"

namespace weft {
namespace {

bool supports_ring(const Collective& c) {
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return true;
    default:
      return false;
  }
}

// n-1 steps that pass partial sums on. The last one completes this rank's own chunk into `to`.
void reduce_phase(Lane& lane, int r, int n, Operands to) {
  const Operand previous = Operand::peer(wrap(r - 1, n)), next = Operand::peer(wrap(r + 1, n));
  add(lane, {Operand::input(wrap(r - 1, n))}, {next});
  for (int k = 1; k < n - 1; k++) add(lane, {previous, Operand::input(wrap(r - 1 - k, n))}, {next});
  add(lane, {previous, Operand::input(r)}, std::move(to));
}

// n-1 steps that pass finished chunks on. This rank's own chunk has been sent before.
void gather_phase(Lane& lane, int r, int n) {
  const Operand previous = Operand::peer(wrap(r - 1, n)), next = Operand::peer(wrap(r + 1, n));
  for (int k = 1; k < n; k++) {
    Operands to = {Operand::output(wrap(r - k, n))};
    if (k < n - 1) to.push_back(next);
    add(lane, {previous}, std::move(to));
  }
}

// A chain from the root. All ranks of a host follow each other, so data enters every host once.
Schedule make_chain(const Collective& c, const HostMap& map) {
  std::vector<int> order{c.root};
  for (const int r : map.neighbours(c.root)) order.push_back(r);
  for (int d = 1; d < map.hosts(); d++)
    for (const int r : map.on(wrap(map.host_of(c.root) + d, map.hosts()))) order.push_back(r);
  Schedule s = blank("ring", c, 1, 1);
  for (size_t i = 0; i < order.size(); i++) {
    Lane& lane = s.ranks[static_cast<size_t>(order[i])].lanes[0];
    const bool broadcasts = c.kind == CollectiveKind::kBroadcast;
    // Towards the root and away from it.
    const Operand own = broadcasts ? Operand::output(0) : Operand::input(0);
    Operands ends = broadcasts ? Operands{own} : Operands{};
    if (i + 1 < order.size()) ends.push_back(Operand::peer(order[i + 1]));
    if (!broadcasts) ends.push_back(own);
    const Operand to_root = i > 0        ? Operand::peer(order[i - 1])
                            : broadcasts ? Operand::input(0)
                                         : Operand::output(0);
    if (broadcasts) {
      add(lane, {to_root}, std::move(ends));
    } else {
      add(lane, std::move(ends), {to_root});
    }
  }
  return s;
}

Schedule make_ring(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("ring", c);
  if (c.rooted()) return make_chain(c, HostMap(std::vector(static_cast<size_t>(n), 0)));
  Schedule s = blank("ring", c, c.kind == CollectiveKind::kAllReduce ? n : 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    const Operand next = Operand::peer(wrap(r + 1, n));
    switch (c.kind) {
      case CollectiveKind::kAllReduce:
        reduce_phase(lane, r, n, {Operand::output(r), next});
        gather_phase(lane, r, n);
        break;
      case CollectiveKind::kReduceScatter:
        reduce_phase(lane, r, n, {Operand::output(0)});
        break;
      case CollectiveKind::kAllGather:
        // First send what others wait for; this rank's own copy comes last.
        add(lane, {Operand::input(0)}, {next});
        gather_phase(lane, r, n);
        add(lane, {Operand::input(0)}, {Operand::output(r)});
        break;
      default:
        break;
    }
  }
  return s;
}

Schedule make_ring_on_hosts(const Collective& c, std::span<const int> hosts) {
  return c.rooted() ? make_chain(c, HostMap(hosts)) : make_ring(c, false);
}

}  // namespace

const Generator kRing = {"ring",
                         "neighbours only: rings, and chains for broadcast and reduce",
                         supports_ring,
                         make_ring,
                         false,
                         kUsualChannels,
                         0,
                         make_ring_on_hosts};

}  // namespace weft
