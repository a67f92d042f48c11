// Binomial trees: broadcast and reduce in log2(ranks) hops, and all_reduce as one after the other.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

bool supports_tree(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kBroadcast ||
         c.kind == CollectiveKind::kReduce;
}

struct Family {
  int parent = -1;
  std::vector<int> children;  // nearest subtree last: the largest subtree comes first
};

// The place of position `v` (0 is the root) in a binomial tree over n positions.
Family family(int v, int n) {
  Family f;
  int bit = 1;
  while (bit < n && (v & bit) == 0) bit <<= 1;
  if (v != 0) f.parent = v & ~bit;
  for (int b = bit >> 1; b > 0; b >>= 1)
    if (v + b < n) f.children.push_back(v + b);
  return f;
}

Schedule make_tree(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("tree", c);
  const bool up = c.kind != CollectiveKind::kBroadcast, down = c.kind != CollectiveKind::kReduce;
  const int root = c.kind == CollectiveKind::kAllReduce ? 0 : c.root;
  Schedule s = blank("tree", c, 1, up && down ? 2 : 1);
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    const Family f = family(wrap(r - root, n), n);
    const auto rank_of = [&](int v) { return wrap(v + root, n); };
    const bool is_root = f.parent < 0;
    Operands children;
    for (int child : f.children) children.push_back(Operand::peer(rank_of(child)));
    if (up) {
      Operands from = {Operand::input(0)};
      from.insert(from.end(), children.begin(), children.end());
      add(lanes[0], std::move(from),
          {is_root ? Operand::output(0) : Operand::peer(rank_of(f.parent))});
    }
    if (down && !(is_root && f.children.empty())) {
      Lane& lane = lanes[up ? 1 : 0];
      std::vector<Dependency> after;
      if (up)
        after.push_back({0, 0});  // the reduce reads the input that an in-place result overwrites
      Operands to;
      if (!(up && is_root)) to.push_back(Operand::output(0));
      for (int child : f.children) to.push_back(Operand::peer(rank_of(child), 1));
      const Operand from = !is_root ? Operand::peer(rank_of(f.parent), 1)
                           : up     ? Operand::output(0)
                                    : Operand::input(0);
      add(lane, {from}, std::move(to), 1, std::move(after));
    }
  }
  return s;
}

}  // namespace

const Generator kTree = {"tree", "binomial trees, log2(ranks) hops", supports_tree, make_tree};

}  // namespace weft
