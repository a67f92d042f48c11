// See random_schedules.h.
#include "tests/simulator/random_schedules.h"

#include <algorithm>
#include <numeric>

#include "algorithms/generators/building.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Parent of every rank; the root is its own.
std::vector<int> random_tree(int n, int root, uint64_t seed) {
  std::vector<int> order(static_cast<size_t>(n)), parent(static_cast<size_t>(n), root);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[static_cast<size_t>(root)]);
  for (size_t i = 1; i < order.size(); i++) {
    std::swap(order[i], order[i + mix(seed, 2 * i) % (order.size() - i)]);
    parent[static_cast<size_t>(order[i])] = order[mix(seed, 2 * i + 1) % i];
  }
  return parent;
}

}  // namespace

Schedule random_forest(const Collective& c, int chunks, uint64_t seed) {
  const int n = c.nranks;
  const bool per_rank =
      c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter;
  const int trees = (per_rank ? n : 1) * chunks;
  Schedule s = blank("random forest", c, chunks, trees);
  for (int t = 0; t < trees; t++) {
    const int root = per_rank ? t / chunks : c.root;
    const std::vector<int> parent = random_tree(n, root, mix(seed, static_cast<uint64_t>(t)));
    for (int r = 0; r < n; r++) {
      Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[static_cast<size_t>(t)];
      const Operand up = Operand::peer(parent[static_cast<size_t>(r)], t);
      Operands down;
      for (int q = 0; q < n; q++)
        if (q != root && parent[static_cast<size_t>(q)] == r) down.push_back(Operand::peer(q, t));
      // Chunk t of the gathered or scattered array is chunk t % chunks of one rank's part.
      if (c.reduces()) {
        down.push_back(Operand::input(t));
        add(lane, down, {r == root ? Operand::output(t % chunks) : up});
      } else {
        down.insert(down.begin(), Operand::output(t));
        add(lane, {r == root ? Operand::input(t % chunks) : up}, down);
      }
    }
  }
  return s;
}

}  // namespace weft::test
