// A chain: sums travel from the last rank to the first, results travel back. Both go on at once,
// slice by slice, so both directions of every link are busy.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

bool supports_chain(const Collective& c) { return c.kind == CollectiveKind::kAllReduce; }

Schedule make_chain(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("chain", c);
  Schedule s = blank("chain", c, 1, 2);
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    Operands sums = {Operand::input(0)};
    if (r < n - 1) sums.push_back(Operand::peer(r + 1));
    if (r == 0) {
      add(lanes[0], sums, {Operand::output(0), Operand::peer(1)});
      lanes.pop_back();
      continue;
    }
    add(lanes[0], sums, {Operand::peer(r - 1)});
    Operands to = {Operand::output(0)};
    if (r < n - 1) to.push_back(Operand::peer(r + 1));
    // In place, the input must have been read.
    add(lanes[1], {Operand::peer(r - 1)}, std::move(to), 1, {{0, 0}});
  }
  return s;
}

}  // namespace

const Generator kChain = {"chain", "all_reduce along a chain and back, both directions at once",
                          supports_chain, make_chain};

}  // namespace weft
