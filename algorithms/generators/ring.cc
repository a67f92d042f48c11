// Rings and chains: every rank talks to two neighbours. Traffic per link is least; latency grows
// with the number of ranks.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

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

Schedule make_ring(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("ring", c);
  Schedule s = blank("ring", c, c.kind == CollectiveKind::kAllReduce ? n : 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    const Operand next = Operand::peer(wrap(r + 1, n));
    const int distance = wrap(r - c.root, n);  // position in a chain that starts at the root
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
      case CollectiveKind::kBroadcast: {
        Operands to = {Operand::output(0)};
        if (distance < n - 1) to.push_back(next);
        add(lane, {distance == 0 ? Operand::input(0) : Operand::peer(wrap(r - 1, n))},
            std::move(to));
        break;
      }
      default: {  // reduce: towards the root, opposite to broadcast
        Operands from;
        if (distance < n - 1) from.push_back(next);
        from.push_back(Operand::input(0));
        add(lane, std::move(from),
            {distance == 0 ? Operand::output(0) : Operand::peer(wrap(r - 1, n))});
      }
    }
  }
  return s;
}

}  // namespace

const Generator kRing = {"ring", "neighbours only: rings, and chains for broadcast and reduce",
                         supports_ring, make_ring};

}  // namespace weft
