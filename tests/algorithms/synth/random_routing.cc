// See random_routing.h.
#include "tests/algorithms/synth/random_routing.h"

#include <algorithm>

namespace weft::test {
namespace {

struct Ends {
  int32_t origin = 0;
  std::vector<int32_t> goals;
};

Ends ends_of(const Collective& c, int32_t block) {
  const int32_t n = c.nranks;
  switch (c.kind) {
    case CollectiveKind::kAllToAll:
      return {block / n, {block % n}};
    case CollectiveKind::kGather:
      return {block, {c.root}};
    case CollectiveKind::kScatter:
      return {c.root, {block}};
    default: {
      Ends ends;
      ends.origin = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce
                        ? c.root
                        : block;
      for (int32_t r = 0; r < n; r++) ends.goals.push_back(r);
      return ends;
    }
  }
}

int32_t blocks_of(const Collective& c) {
  if (c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce) return 1;
  return c.kind == CollectiveKind::kAllToAll ? c.nranks * c.nranks : c.nranks;
}

// Grows a tree until all goals have the piece. Then drops the ranks that lead to no goal.
std::vector<Transfer> random_tree(int32_t piece, const Ends& ends, int n, Random& random) {
  std::vector<int32_t> parent(static_cast<size_t>(n), -1);
  std::vector<double> at(static_cast<size_t>(n), 0);
  std::vector<int32_t> have = {ends.origin};
  const auto has = [&](int32_t r) { return std::find(have.begin(), have.end(), r) != have.end(); };
  while (!std::all_of(ends.goals.begin(), ends.goals.end(), has)) {
    const auto to = static_cast<int32_t>(random.below(static_cast<uint64_t>(n)));
    if (has(to)) continue;
    const int32_t from = have[random.below(have.size())];
    parent[static_cast<size_t>(to)] = from;
    at[static_cast<size_t>(to)] =
        at[static_cast<size_t>(from)] + 1 + static_cast<double>(random.below(8));
    have.push_back(to);
  }
  std::vector<bool> useful(static_cast<size_t>(n), false);
  for (int32_t goal : ends.goals)
    for (; goal != ends.origin && !useful[static_cast<size_t>(goal)];
         goal = parent[static_cast<size_t>(goal)])
      useful[static_cast<size_t>(goal)] = true;
  std::vector<Transfer> tree;
  for (int32_t r = 0; r < n; r++)
    if (useful[static_cast<size_t>(r)]) {
      // Some pairs have two paths.
      const auto path = static_cast<int32_t>(random.below(4) == 0 ? 1 : 0);
      tree.push_back(
          {piece, parent[static_cast<size_t>(r)], r, {2 * r + path}, at[static_cast<size_t>(r)]});
    }
  return tree;
}

std::vector<Transfer> trees(const Collective& c, int chunks, bool together, Random& random) {
  std::vector<Transfer> all;
  for (int32_t block = 0; block < blocks_of(c); block++) {
    const Ends ends = ends_of(c, block);
    std::vector<Transfer> tree;
    for (int32_t chunk = 0; chunk < chunks; chunk++) {
      const int32_t piece = block * chunks + chunk;
      if (chunk == 0 || !together || random.below(3) == 0)
        tree = random_tree(piece, ends, c.nranks, random);
      for (Transfer& t : tree) {
        t.piece = piece;
        all.push_back(t);
      }
    }
  }
  return all;
}

}  // namespace

Routing random_routing(const Collective& collective, int chunks, bool together, Random& random) {
  Routing routing{collective, chunks, {}, {}};
  routing.transfers = trees(collective, chunks, together, random);
  if (collective.kind == CollectiveKind::kAllReduce)
    routing.reduction = trees(collective, chunks, together, random);
  return routing;
}

}  // namespace weft::test
